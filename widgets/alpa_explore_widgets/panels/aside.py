"""What can be planned aside, as lists: levers, plans that were made, and baselines, each with what is known of it and
buttons that ask for it, show it, or keep it."""

from collections.abc import Mapping, Sequence
from html import escape

from alpa_explore import units
from alpa_explore.baselines.kinds import KINDS
from alpa_explore.figures.keys import aside_key, key
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import change_text, differences
from alpa_explore.plans.report.text import fullest
from alpa_explore.units import SMALL, printable
from alpa_explore_widgets.panels.verdict import scaled_seconds
from alpa_explore_widgets.session.levers import Lever
from alpa_explore_widgets.session.state import State

_STAR = "M8 1.8l1.9 4 4.3.5-3.2 3 .9 4.3L8 11.4l-3.9 2.2.9-4.3-3.2-3 4.3-.5z"


def planned_gain(state: State, lever: Lever) -> float | None:
    """Share of the time of a sample that a lever saves, by the plan that was made with it; None without one."""
    number = state.history.place(lever.settings)
    return None if number < 0 or state.plan is None else _gain(state.plan, state.history.plans[number])


def _gain(plan: Plan, other: Plan) -> float:
    return 1.0 - plan.samples_per_second / other.samples_per_second


def estimated_gain(state: State, lever: Lever) -> float | None:
    """The same without planning: of another schedule, as the plan was compared with it; of other nodes or microbatches,
    by the work of a device. None where nothing is known at once; fewer samples may not divide among the replicas."""
    plan, now = state.plan, state.plan_settings
    if plan is None or now is None or lever.settings.microbatch < now.microbatch:
        return None
    seconds = scaled_seconds(plan, now, lever.settings)
    if lever.settings.schedule != now.schedule:
        tried = (t.iteration_seconds for t in plan.schedules if t.schedule == lever.settings.schedule)
        seconds = min((t for t in tried if t is not None), default=None)
    return None if seconds is None else 1.0 - seconds / plan.predicted.iteration_seconds


def ranked_html(state: State, levers: Sequence[Lever], gains: Mapping[str, float]) -> str:
    """The free levers, those that buy hardware, and the plans that are no answer to one, each group with the best
    first (of plans what is kept), then what is not asked."""
    others = other_plans(state, levers)
    largest = max([*map(abs, gains.values()), *(abs(gain) for *_, gain in others), SMALL])
    groups = []
    for heading, free in (("Free: settings, for the same global batch", True), ("Bought: hardware", False)):
        group = [lever for lever in levers if lever.free is free]
        group.sort(key=lambda lever: (lever.name not in gains, -gains.get(lever.name, 0.0), -lever.promise))
        groups.append((heading, [_lever(state, lever, gains.get(lever.name), largest) for lever in group]))
    made = [_answer(state, number, name, "A plan that you made", gain, largest) for number, name, gain in others]
    groups.append(("Yours: the plan on screen, and what else you tried", made))
    return "".join(f"<h4>{heading}</h4><ul>{''.join(rows)}</ul>" for heading, rows in groups if rows)


def other_plans(state: State, levers: Sequence[Lever]) -> list[tuple[int, str, float]]:
    """(place in the history, what differs from the plan on screen, share of the time of a sample that it saves) of that
    plan and of all that answer no lever: those that are kept first, then the fastest."""
    plan, history = state.plan, state.history
    answers = {history.place(lever.settings) for lever in levers}
    entries = [(at, entry) for at, entry in enumerate(history.entries) if at not in answers or entry.plan is plan]
    if plan is None:
        return []
    entries.sort(key=lambda pair: (not pair[1].kept, -pair[1].plan.samples_per_second))
    return [(at, _difference(plan, entry.plan), _gain(plan, entry.plan)) for at, entry in entries]


def _difference(plan: Plan, other: Plan) -> str:
    if other is plan:
        return "this plan"
    return printable("; ".join(map(str, differences(plan, other)))) or "the same settings"


def baselines_html(state: State) -> str:
    """The baselines to compare a plan with, which is itself none of the list."""
    own = "" if state.plan is None else state.plan.options.baseline.split(" ")[0]
    press = "Press to plan it for the same model, cluster and batch, and to compare; this plan stays"
    rows = (
        _row(state, kind, f"{meaning}. {press}", meaning, "Compare", aside_key("baseline", kind))
        for kind, meaning in KINDS.items()
        if kind != own
    )
    return f'<h4>Baselines</h4><ul class="alpa-baselines">{"".join(rows)}</ul>'


def asked(state: State) -> str:
    """The name of what is being planned aside; '' for nothing."""
    parts = state.activity.split(": ") if state.planning and state.aside else []
    return parts[1] if len(parts) > 2 else ""


def _lever(state: State, lever: Lever, gain: float | None, largest: float) -> str:
    if gain is not None:
        return _answer(state, state.history.place(lever.settings), lever.name, lever.hint, gain, largest)
    seconds, guess = _about(lever.seconds), estimated_gain(state, lever)
    said = f"not asked yet · about {seconds}"
    if guess is not None:
        said = f"≈ {change_text(-guess)}, an estimate · exact in about {seconds}"
    hint = f"{lever.hint}. Press to plan it; this plan stays"
    return _row(state, lever.name, hint, said, "Try", aside_key("lever", lever.name))


def _answer(state: State, number: int, name: str, hint: str, gain: float, largest: float) -> str:
    """A plan of the history: what it saves, its time and memory, and what shows and keeps it."""
    entry = state.history.entries[number]
    plan, full, here = entry.plan, fullest(entry.plan), entry.plan is state.plan
    tone = "even" if abs(gain) < SMALL else "better" if gain > 0 else "worse"
    bar = f'<i class="alpa-{tone}" style="width:{max(100 * abs(gain) / largest, 0.5):.1f}%"></i>'
    memory = units.percent(full.peak_bytes / plan.device_of(full).memory_bytes)
    figures = f"{units.seconds(plan.predicted.iteration_seconds)} · memory {memory}"
    more = f"{hint}; plan {number + 1}: {figures} · MFU {units.percent(plan.flops_utilization)}"
    keep = "Keep this plan no longer" if entry.kept else "Keep this plan, whatever else is tried"
    icon = f'<svg class="alpa-icon" viewBox="0 0 16 16" aria-hidden="true"><path d="{_STAR}"/></svg>'
    star = _button(aside_key("keep", number), keep, icon, f"alpa-keep{' alpa-kept' * entry.kept}")
    press = "<i></i>" if here else _button(key(plan=number), f"{more}. Press to show it", "Open")
    said = f"<em>{figures}</em><span>{'on screen' if here else change_text(-gain)}</span>"
    return _item(name, more, said, tone, press + star, bar)


def _row(state: State, name: str, hint: str, said: str, press: str, pressed: str) -> str:
    """What has no plan: `said` of what was not asked, else why there is none, or that it is being planned."""
    failed = next((attempt for attempt in state.no_plans if attempt.name == name), None)
    short = hint.partition(". Press")[0]
    if failed is not None:
        return _item(name, short, escape(f"no plan: {failed.reason}"), "worse")
    if asked(state) == name:
        return _item(name, short, "planning…", "quiet")
    return _item(name, short, escape(said), "quiet", _button(pressed, hint, press))


def _button(pressed: str, hint: str, text: str, css: str = "") -> str:
    named = f' class="{css}" aria-label="{hint}"' if css else ""
    return f'<button type="button" data-alpa-key="{pressed}" title="{escape(hint)}"{named}>{text}</button>'


def _item(name: str, hint: str, said: str, tone: str, buttons: str = "", bar: str = "") -> str:
    plain = said.replace("<em>", "").replace("</em><span>", " · ").replace("</span>", "")
    return (
        f'<li><span title="{escape(f"{name}: {hint}")}">{escape(name)}</span><span class="alpa-bar">{bar}</span>'
        f'<b class="alpa-{tone}" title="{plain}">{said}</b>{buttons}</li>'
    )


def _about(seconds: float) -> str:
    """'8 s', '3 min'."""
    return f"{max(round(seconds), 1)} s" if seconds < 90 else f"{round(seconds / 60)} min"
