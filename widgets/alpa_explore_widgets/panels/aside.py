"""What can be planned aside, as lists: levers and baselines, each with what is known of it and a button that asks."""

from collections.abc import Mapping, Sequence
from html import escape

from alpa_explore.baselines.kinds import KINDS
from alpa_explore.figures.keys import aside_key, key
from alpa_explore.plans.report.compare import change_text
from alpa_explore.units import SMALL
from alpa_explore_widgets.panels.verdict import scaled_seconds
from alpa_explore_widgets.session.levers import Lever
from alpa_explore_widgets.session.state import State


def planned_gain(state: State, lever: Lever) -> float | None:
    """Share of the time of a sample that a lever saves, by the plan that was made with it; None without one."""
    number = state.history.place(lever.settings)
    if number < 0 or state.plan is None:
        return None
    return 1.0 - state.plan.samples_per_second / state.history.plans[number].samples_per_second


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


def levers_html(state: State, levers: Sequence[Lever], gains: Mapping[str, float]) -> str:
    """The free levers and those that buy hardware, each group with the best answer first, then what is not asked."""
    largest = max([*map(abs, gains.values()), SMALL])
    groups = []
    for heading, free in (("Free: settings, for the same global batch", True), ("Bought: hardware", False)):
        group = [lever for lever in levers if lever.free is free]
        group.sort(key=lambda lever: (lever.name not in gains, -gains.get(lever.name, 0.0), -lever.promise))
        rows = "".join(_lever(state, lever, gains.get(lever.name), largest) for lever in group)
        groups.append(f"<h4>{heading}</h4><ul>{rows}</ul>" if rows else "")
    return "".join(groups)


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
    if gain is None:
        seconds, guess = _about(lever.seconds), estimated_gain(state, lever)
        said = f"not asked yet · about {seconds}"
        if guess is not None:
            said = f"≈ {change_text(-guess)}, an estimate · exact in about {seconds}"
        return _row(state, lever.name, f"{lever.hint}. Press to plan it; this plan stays", said, "Try", _key_of(lever))
    tone = "" if abs(gain) < SMALL else "better" if gain > 0 else "worse"
    bar = f'<i class="alpa-{tone or "even"}" style="width:{max(100 * abs(gain) / largest, 0.5):.1f}%"></i>'
    hint, opened = f"{lever.hint}: the time of a sample, planned. Press to show that plan", state.history
    return _html(lever.name, hint, change_text(-gain), tone, "Open", key(plan=opened.place(lever.settings)), bar)


def _key_of(lever: Lever) -> str:
    return aside_key("lever", lever.name)


def _row(state: State, name: str, hint: str, said: str, press: str, pressed: str) -> str:
    """What has no plan: `said` of what was not asked, else why there is none, or that it is being planned."""
    failed = next((attempt for attempt in state.no_plans if attempt.name == name), None)
    if failed is not None:
        return _html(name, hint, f"no plan: {failed.reason}", "worse")
    if asked(state) == name:
        return _html(name, hint, "planning…", "quiet")
    return _html(name, hint, said, "quiet", press, pressed)


def _html(name: str, hint: str, said: str, tone: str, press: str = "", pressed: str = "", bar: str = "") -> str:
    button = f'<button type="button" data-alpa-key="{pressed}" title="{escape(hint)}">{press}</button>'
    return (
        f'<li><span title="{escape(hint.partition(". Press")[0])}">{escape(name)}</span>'
        f'<span class="alpa-bar">{bar}</span><b class="alpa-{tone}" title="{escape(said)}">{escape(said)}</b>'
        f"{button if press else ''}</li>"
    )


def _about(seconds: float) -> str:
    """'8 s', '3 min'."""
    return f"{max(round(seconds), 1)} s" if seconds < 90 else f"{round(seconds / 60)} min"
