"""A lesson as an HTML page: parts, quizzes, the picture of the first page.

Every heading of level 2 or 3 begins a part, and so does every quiz: a part is a slide. The script grades quizzes with
the data of `quiz_data`. The picture is a pipeline in 1F1B order that fills, runs and drains again and again; its times
are those of the simulator of schedules, and CSS moves it, so that it needs no script, and stands still for readers who
ask for less motion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from alpa_explore import units
from alpa_explore.course.ask import NEAR, solution_text
from alpa_explore.course.cards import inline_html, text_html
from alpa_explore.course.coding.task import task_of
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import READING, SCALES, SLIPS, Choice, Items, Kind, Number
from alpa_explore.course.lessons.notebook import Lesson
from alpa_explore.course.registry import EXERCISES
from alpa_explore.course.site import tuning
from alpa_explore.course.site.execute import RunCell
from alpa_explore.course.site.markdown import code_html, markdown_html
from alpa_explore.course.site.outputs import WIDGET, Figures, figure_html, outputs_html
from alpa_explore.course.site.words import Linker, said, with_anchors
from alpa_explore.figures.html_page import without_clicks
from alpa_explore.figures.style import CONFIG, OKABE_ITO, empty, faint, ground, ink, ink_on, template
from alpa_explore.schedules.orders.one_f_one_b import one_f_one_b
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.schedules.task import Action
from alpa_explore.templates import filled


def quiz_html(exercise: Exercise) -> str:
    """The form, for the numbers of everybody."""
    key = exercise.id.replace(".", "-")
    hints = "".join(f"<li hidden>{text_html(hint)}</li>" for hint in exercise.hints)
    return (
        f'<form class="quiz" id="quiz-{key}" data-quiz="{exercise.id}" aria-labelledby="title-{key}">'
        f'<h4 id="title-{key}">{exercise.id} {escape(exercise.title)} · {exercise.grade}</h4>'
        f"{text_html(exercise.question)}{_field(exercise.kind, key)}"
        '<div class="buttons"><button type="submit">Check</button> '
        '<button type="button" class="hint">Hint</button></div>'
        f'<div class="verdict" role="status"></div><ol class="hints">{hints}</ol>'
        f"<details><summary>Show the solution</summary>{text_html(solution_text(exercise))}</details></form>"
    )


def quiz_data(exercise: Exercise) -> dict[str, Any]:
    """What the script grades with."""
    kind = exercise.kind
    return {
        **_kind_data(kind),
        "asks": kind.asks,
        "truth": _answer_data(kind, exercise.truth),
        "why": text_html(exercise.why),
        "mistakes": [
            {"answer": _answer_data(kind, mistake.answer), "reason": text_html(mistake.reason)}
            for mistake in exercise.mistakes
        ],
    }


def guess_html() -> str:
    """A field for the guess of a lesson; the script compares it with the card that reveals what came out."""
    return (
        '<form class="guess"><label>Your guess <input name="answer" type="text" autocomplete="off" spellcheck="false">'
        '</label> <button type="submit">Keep</button><div class="verdict" role="status"></div></form>'
    )


def guess_kinds() -> dict[str, Any]:
    """Unit -> what the script reads a guess with."""
    return {unit: {**_kind_data(kind := Number(unit=unit, tolerance=NEAR)), "asks": kind.asks} for unit in SCALES}


def _field(kind: Kind, key: str) -> str:
    if isinstance(kind, Choice):
        options = "".join(
            f'<label><input type="radio" name="answer" value="{escape(option)}"> {inline_html(line)}</label>'
            for option, line in zip(kind.options, kind.lines, strict=True)
        )
        return f"<fieldset><legend>Choose one.</legend>{options}</fieldset>"
    return (
        f'<label class="answer" for="answer-{key}">Your answer: {escape(kind.asks)}</label>'
        f'<input id="answer-{key}" name="answer" type="text" autocomplete="off" spellcheck="false">'
    )


def _kind_data(kind: Kind) -> Mapping[str, Any]:
    if isinstance(kind, Number):
        slips = [{"factor": factor, "name": name} for factor, name in SLIPS.get(kind.unit, ())]
        more = {"slips": slips, "scales": SCALES[kind.unit], "unit": kind.unit, "reading": READING}
        return {"kind": "number", "tolerance": kind.tolerance or 1e-9, **more}
    if isinstance(kind, Items):
        return {"kind": "items", "ordered": kind.ordered, "reading": READING}
    assert isinstance(kind, Choice)
    return {"kind": "choice"}


def _answer_data(kind: Kind, value: Any) -> Any:
    """A value as JSON; the text of an option that was given by its letter."""
    read = kind.read(value)
    return list(read) if isinstance(read, tuple) else read


_STAGES, _MICROBATCHES = 4, 8
"""As in the question of lesson 08."""
_TIMES = StageTimes(forward_seconds=1.0, backward_input_seconds=2.0, backward_weight_seconds=0.0)
_WIDTH, _HEIGHT, _ROW = 22, 20, 24
"""Of a forward pass, in units of the picture; of a bar; of a stage."""
_TICK = 0.18
"""Seconds of the film for a forward pass."""


def moving_pipeline_html() -> str:
    """The picture with what it shows in words, as HTML."""
    timeline = simulate(one_f_one_b(_STAGES, _MICROBATCHES), [_TIMES] * _STAGES)
    schedule, span = timeline.schedule, timeline.makespan_seconds
    bars = []
    when = zip(timeline.start_seconds, timeline.end_seconds, strict=True)
    what = zip(schedule.actions, schedule.stages, schedule.microbatches, strict=True)
    for (action, stage, microbatch), (start, end) in zip(what, when, strict=True):
        if action not in (Action.FORWARD, Action.BACKWARD):
            continue  # the update, which takes no time here
        x, y, width = _WIDTH * float(start), _ROW * int(stage), _WIDTH * float(end - start)
        colour = OKABE_ITO[int(microbatch) % len(OKABE_ITO)]
        kind = "forward" if action == Action.FORWARD else "backward"
        bars.append(
            f'<g class="{kind}" style="--own:{colour};--on:{ink_on(colour)};--at:{float(start) * _TICK:.2f}s">'
            f'<rect x="{x:g}" y="{y}" width="{width - 1:g}" height="{_HEIGHT}" rx="2"/>'
            f'<text x="{x + width / 2 - 0.5:g}" y="{y + 14}">{int(microbatch) + 1}</text></g>'
        )
    idle = units.percent(timeline.bubble_fraction)
    words = (
        f"{_MICROBATCHES} microbatches pass through {_STAGES} stages of a pipeline, forward (full) and backward "
        f"(outlined). Where a row is empty, a device waits: {idle} of the time."
    )
    return (
        f'<figure class="moving" style="--film:{2 * span * _TICK:.1f}s">'
        f'<svg viewBox="0 0 {_WIDTH * span:g} {_ROW * _STAGES}" role="img" aria-label="{escape(words)}">'
        f"{''.join(bars)}</svg><figcaption>{words} Which order waits less, and what does a device then hold? "
        f'<a href="08_schedules.html">Lesson 08</a></figcaption></figure>'
    )


_HEADING = re.compile(r"<h([1-3])>(.*?)</h\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_MEASURE = re.compile(
    r"<(pre|code)\b.*?</\1>|<[^>]+>|(?<=\d) (?=(?:%|[nmµ]?s|[kMGT]i?B|[TP]?FLOP)(?![a-z]))", re.DOTALL
)
"""The space between a number and its unit, at which no line should break; or what has none: code and tags."""
_POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "img-src 'self' file: data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
"""Nothing is loaded but what lies beside the page."""
_STUDENT = re.compile(r"^student\(", re.MULTILINE)
"""In a cell that says who answers, which is nobody here: the page does not show it."""
_TASK = re.compile(r"^task\(\"([\w-]+)\"\)", re.MULTILINE)
_GUESS = "my_guess = ..."
"""A cell in whose place the page has a field."""
_REVEALS = "data-truth="
"""In a card that waits for a guess."""
_HIDDEN, _REMOVED = "hide-input", "remove-cell"
"""Tags of a cell whose code the page does not show, and of one that it does not show at all."""
_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)/?(?:\.git)?")
SCRIPTS = ("grading.js", "site.js")
"""Of every page."""
INDEX = "index"
"""The first page."""
WHAT_IF = "what_if"
"""The page that prices layouts, which comes first in the list."""
GLOSSARY = "glossary"
"""The page whose words the others link."""
_ABOUT = "Guess how a model is trained on many devices, and see what the planner finds: a course with live figures."


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What pages know of each other."""

    lessons: Sequence[Lesson]
    pages: Sequence[Lesson] = ()
    """Those that are no lessons."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Word -> meaning."""
    repository: str = ""
    """The address of the source, for links; '' where the pages should lead nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page as HTML."""

    html: str
    body: str
    """What the search looks through."""


def page_html(
    run: Sequence[RunCell],
    lesson: Lesson,
    site: Site,
    *,
    data: Mapping[str, Any] | None = None,
    scripts: Sequence[str] = (),
) -> Page:
    """The page of a lesson that was run, or of the index and the like; `data` are for `scripts` of its own."""
    figures, quizzes, parts = Figures(), dict[str, Any](), [list[str]()]
    linked = Linker({} if lesson.name == GLOSSARY else site.terms)
    for cell in run:
        html = _cell_html(cell, figures, quizzes)
        if cell.cell.kind == "markdown":
            html = with_anchors(html) if lesson.name == GLOSSARY else linked(html)
        for piece, starts in _pieces(html, new_part=bool(cell.cell.exercise)):
            if starts:
                parts.append([])
            parts[-1].append(piece)
    texts = [_MEASURE.sub(lambda m: "\u00a0" if m[0] == " " else m[0], "".join(part)) for part in parts if part]
    body = "\n".join(
        f'<section class="part" id="part-{number}" data-said="{escape(said(text), quote=True)}">{text}</section>'
        for number, text in enumerate(texts)
    )
    below = _goals(lesson) + (moving_pipeline_html() if lesson.name == INDEX else "")
    body = body.replace("</h1>", f"</h1>{below}", 1)
    every = {"figures": figures.data, "quizzes": quizzes, "guesses": guess_kinds(), **themes(), **(data or {})}
    return Page(html=_document(lesson, site, body, every, scripts), body=body)


def _pieces(html: str, *, new_part: bool) -> list[tuple[str, bool]]:
    """The HTML of a cell, divided before its headings, which get an id to link to; whether a part begins with each."""
    pieces, last, starts = [], 0, new_part
    for match in _HEADING.finditer(html):
        if match.start() > last and html[last : match.start()].strip():
            pieces.append((html[last : match.start()], starts))
        level, words = match[1], match[2]
        key = re.sub(r"\W+", "-", _TAG.sub("", words)).strip("-").lower()
        pieces.append((f'<h{level} id="{key}">{words}</h{level}>', True))
        last, starts = match.end(), False
    if html[last:].strip():
        pieces.append((html[last:], starts))
    return pieces


def _cell_html(run: RunCell, figures: Figures, quizzes: dict[str, Any]) -> str:
    cell, tags = run.cell, run.cell.metadata.get("tags", ())
    if cell.kind == "markdown":
        return "" if _REMOVED in tags else markdown_html(cell.source)
    if cell.exercise:
        exercise = EXERCISES[cell.exercise]
        quizzes[exercise.id] = quiz_data(exercise)
        return quiz_html(exercise)
    if cell.points:
        return ""
    if cell.source.strip() == _GUESS:
        return guess_html()
    if _STUDENT.search(cell.source):
        return ""
    code = "" if _HIDDEN in tags else code_html(cell.source)
    if code and (count := cell.source.count("\n") + 1) > tuning.OPEN_LINES:
        code = f"<details><summary>{count} lines of Python</summary>{code}</details>"
    outputs = run.outputs
    if run.plan is not None:
        # The widget and the table that stands for it where there is no kernel.
        outputs = [o for o in outputs if WIDGET not in o.get("data", {}) and "alpa-saved" not in str(o.get("data", {}))]
    if any(_REVEALS in str(o.get("data", {}).get("text/html", "")) for o in outputs):
        # What is printed beside a card that asks for a guess would tell the answer.
        told = [output for output in outputs if output.get("name") == "stdout"]
        outputs = [output for output in outputs if output not in told]
        code += f"<details><summary>What it prints</summary>{outputs_html(told, figures)}</details>" if told else ""
    shown = outputs_html(outputs, figures) + (plan_html(run.plan, figures) if run.plan is not None else "")
    if asked := _TASK.search(cell.source):
        shown += _by_hand_html(asked[1])
    return f'<div class="cell">{code}{shown}</div>'


def _by_hand_html(name: str) -> str:
    """How to run and grade a coding task, which a page cannot do."""
    task = task_of(name)
    file = f'from alpa_explore.course import task\n\n\n{task.starter}\n\n\nprint(task("{name}", {task.function}))'
    return (
        "<p>A page cannot run it. In a checkout of alpa_explore, after <code>make install</code>, complete this file "
        "as <code>solution.py</code>. Then <code>.venv/bin/python solution.py</code> grades it, and says where it "
        f"differs.</p>{code_html(file)}"
    )


def title_of(lesson: Lesson) -> str:
    """'03 · Collectives'."""
    return f"{lesson.number} · {lesson.title}" if lesson.number else lesson.title


def _document(lesson: Lesson, site: Site, body: str, data: dict[str, Any], scripts: Sequence[str]) -> str:
    lessons = site.lessons
    about = escape("; ".join(goal.rstrip(".") for goal in lesson.goals) or _ABOUT, quote=True)
    place = lessons.index(lesson) if lesson in lessons else -1
    before = lessons[place - 1] if place > 0 else None
    after = lessons[place + 1] if lesson in lessons[:-1] else lessons[0] if place < 0 and lessons else None
    names = [*(["plotly.min.js"] if data["figures"] else []), *SCRIPTS, *scripts]
    shown = {
        "policy": _POLICY,
        "title": escape(title_of(lesson), quote=True),
        "about": about,
        "loaded": "".join(f'<script defer src="{name}"></script>\n' for name in names),
        "links": _links(lesson, site),
        "body": body,
        "turns": _turn(before, "←") + _turn(after, "→"),
        "source": _source(lesson, site),
        "data": _json(data),
    }
    return filled((files(__package__) / "page.html").read_text(encoding="utf-8"), shown)


def _links(here: Lesson, site: Site) -> str:
    others = [page for page in site.pages if page.name not in (INDEX, WHAT_IF)]
    tried = [page for page in site.pages if page.name == WHAT_IF]
    items = [
        f'<li><a href="{page.name}.html"{" aria-current=page" if page == here else ""}>'
        f"{escape(title_of(page))}</a></li>"
        for page in (*tried, *site.lessons, *others)
    ]
    return f"<ul>{''.join(items)}</ul>"


def _goals(lesson: Lesson) -> str:
    if not lesson.number or not lesson.goals:
        return ""
    goals = "".join(f"<li>{escape(goal)}</li>" for goal in lesson.goals)
    return f'<aside class="goals"><p>After it you can</p><ul>{goals}</ul></aside>'


def _source(lesson: Lesson, site: Site) -> str:
    """Links to the notebook, to the source, and to where it runs without installing."""
    file = f"notebooks/{lesson.path.name}"
    links = [f'<a href="{file}" download>This page as a notebook</a>'] if lesson.path.is_file() else []
    if site.repository:
        links.append(f'<a href="{escape(site.repository, quote=True)}">Source</a>')
        if owned := _GITHUB.fullmatch(site.repository):
            address = f"https://mybinder.org/v2/gh/{owned[1]}/HEAD?urlpath=lab/tree/{file}"
            links.append(f'<a href="{address}">Run it on Binder</a>')
    return " · ".join([*links, "alpa_explore, Apache-2.0"])


def _turn(lesson: Lesson | None, arrow: str) -> str:
    if lesson is None:
        return "<span></span>"
    words = f"{lesson.number} · {escape(lesson.title)}"
    label = f"{arrow} {words}" if arrow == "←" else f"{words} {arrow}"
    return f'<a href="{lesson.name}.html">{label}</a>'


def _json(data: Any) -> str:
    """For a script element, in which entities are not decoded: what could end it becomes an escape."""
    text = without_clicks(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plan_html(plan: Mapping[str, Any], figures: Figures) -> str:
    """The explorer of a cell, as it was when the lesson was run."""
    parts = "".join(
        f'<section><h4>{escape(part["title"])}</h4><p class="note">{escape(part["question"])}</p>'
        f"{figure_html(part['figure'], figures)}"
        f"<details><summary>The same as a table</summary>{part['table']}</details></section>"
        for part in plan["figures"]
    )
    return (
        f'<div class="plan"><div class="scroll">{plan["table"]}</div>'
        '<p class="note">In the notebook this is the explorer, whose plan follows every slider.</p>'
        f"<details><summary>The figures of this plan: {escape(plan['name'])}</summary>{parts}</details></div>"
    )


def themes() -> dict[str, Any]:
    """For the script: what differs between figures in the light and in the dark theme.

    Figures are made in the light theme. For the dark one the script replaces their template, the colours of their
    ground, and those of ink (`pairs`), wherever one of these stands alone as a value.
    """
    return {
        "config": CONFIG,
        "templates": {theme: json.loads(json.dumps(template(theme).to_plotly_json())) for theme in ("light", "dark")},
        "ground": {theme: ground(theme) for theme in ("light", "dark")},
        "ink": {theme: ink(theme) for theme in ("light", "dark")},
        "pairs": {colour("light"): colour("dark") for colour in (ink, faint, empty)},
    }
