"""Timed kernels: a button that times the kernels of the plan on screen on the attached device, and plans with them."""

from html import escape

import ipywidgets as W

from alpa_explore import units
from alpa_explore.plans.report.error_bands import measured_sentence
from alpa_explore_widgets.elements.fields import plain_button, whole_field
from alpa_explore_widgets.elements.page_widget import box
from alpa_explore_widgets.panels.messages import fault_html
from alpa_explore_widgets.panels.setting_controls import fold
from alpa_explore_widgets.session.asking.kernel_times import Profiling
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.session.training_run import KernelTimes

SECONDS = 30


class ProfilePanel:
    """Times kernels, says how much of the plan's time is timed, and of what that is."""

    def __init__(self, profiling: Profiling) -> None:
        self._profiling = profiling
        hint = "About how long to time kernels, what takes most of the plan's time first."
        self.seconds = whole_field("Seconds", hint, 100_000, SECONDS)
        hint = "Time the kernels of this plan on the attached hosts, else on this machine, and plan with these times"
        self.start = plain_button("Profile", hint, self._start)
        self.cancel = plain_button("Cancel", "Stop, and plan with what was timed", profiling.cancel, disabled=True)
        self.found = W.HTML()
        line = box("alpa-attach-line", self.seconds, self.start, self.cancel)
        hint = "Costs of kernels that were timed on the device, in place of those of formulas."
        self.heading, group = fold("Timed kernels", hint, line, self.found, expanded=False)
        self.widget = box("alpa-attached", self.heading, group, kind=W.VBox)

    def show(self, state: State) -> None:
        """Update buttons and status."""
        times = state.kernel_times
        busy = times is not None and times.busy
        self.start.disabled, self.cancel.disabled = busy or state.plan is None, not busy
        sentence = "" if state.plan is None else measured_sentence(state.plan)
        shown = _status(times) + (f'<p class="alpa-share">{escape(sentence)}</p>' if sentence else "")
        if shown != self.found.value:
            self.found.value = shown

    def _start(self) -> None:
        self._profiling.start(float(self.seconds.value or SECONDS))


def _status(times: KernelTimes | None) -> str:
    """Progress, what was found, or why nothing was."""
    if times is None:
        return ""
    if times.fault is not None:
        return fault_html(times.fault)
    share = f"{units.percent(times.share)} of the plan's kernel time"
    where = f"the hosts of <code>{escape(times.scheduler)}</code>" if times.scheduler else "this machine"
    if times.found is None:
        bar = f'<progress aria-label="Share of the plan\'s time" max="1" value="{times.share:.4f}"></progress>'
        return f'<p role="status">{bar} timed on {where}: {times.done:,} of {times.kernels:,} kernels, {share}</p>'
    found = times.found
    text = f"{found.timed:,} kernels timed on {where}, {found.known:,} known before, {found.left:,} left: {share}."
    if found.unsteady:
        text += f" {len(found.unsteady):,} vary by more than 20 %: another program may use the device; profile again."
    lists = (
        ("Do not run, so that strategies with them have no price", found.failed),
        ("Not timed, priced by formulas", found.untimed),
    )
    return f'<p role="status">{text}</p>' + "".join(
        f"<p>{title}:</p><ul>{''.join(f'<li>{escape(name)}: {escape(why)}</li>' for name, why in kernels)}</ul>"
        for title, kernels in lists
        if kernels
    )
