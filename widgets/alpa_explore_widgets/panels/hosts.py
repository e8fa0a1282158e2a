"""Attached hosts: the address of a Dask scheduler, tables of its hosts and links, a button that plans for them; a
button that times the kernels of the plan on screen there, and plans with them."""

from collections.abc import Callable
from html import escape

import ipywidgets as W

from alpa_explore import units
from alpa_explore.plans.report.error_bands import measured_sentence
from alpa_explore_widgets.elements.fields import CONTROLS, TextField, plain_button, whole_field
from alpa_explore_widgets.elements.page_widget import box, set_class
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.panels.messages import fault_html
from alpa_explore_widgets.panels.setting_controls import fold
from alpa_explore_widgets.session.runs import Attaching, Profiling
from alpa_explore_widgets.session.state import Attachment, KernelTimes, State


class AttachedPanel:
    """Attaches hosts, shows them, and plans for them. `plan` is called with the address of their scheduler."""

    def __init__(self, attaching: Attaching, plan: Callable[[str], None]) -> None:
        self._attaching, self._plan = attaching, plan
        said = CONTROLS["hosts"]
        self.address = TextField(**said["address"])
        self.attach = plain_button(**said["attach"], press=lambda: attaching.start(self.address.value))
        self.cancel = plain_button(**said["cancel"], press=attaching.cancel, disabled=True)
        self.plan_for_these = plain_button(**said["plan_for_these"], press=self._plan_for_these, disabled=True)
        self.found = W.HTML()
        line = box("alpa-attach-line", self.address, self.attach, self.cancel, self.plan_for_these)
        self.heading, group = fold(*said["group"].values(), line, self.found, expanded=False)
        self.widget = box("alpa-attached", self.heading, group, kind=W.VBox)
        self._shown: Attachment | None = None

    def show(self, state: State) -> None:
        """Update buttons and tables."""
        attachment = state.attachment
        busy = attachment is not None and attachment.busy
        self.attach.disabled, self.cancel.disabled = busy, not busy
        ready = attachment is not None and attachment.cluster is not None
        self.plan_for_these.disabled = not ready
        set_class(self.plan_for_these, "alpa-call", on=ready)
        if attachment is not self._shown:
            self._shown = attachment
            self.found.value = "" if attachment is None else attachment_html(attachment)

    def _plan_for_these(self) -> None:
        if self._shown is not None and self._shown.nodes is not None:
            self._plan(self._shown.nodes.scheduler)


def attachment_html(attachment: Attachment) -> str:
    """Progress, tables of hosts and links, and the reason where the planner cannot plan for them."""
    from alpa_explore.attached.hosts import differences, differences_from_here, host_rows, link_rows

    parts = [_status(attachment)]
    nodes = attachment.nodes
    if nodes is not None:
        warnings = [f"Hosts differ. {text}." for text in differences(nodes.hosts)]
        warnings += [
            f"Hosts differ from this kernel. {text}." for text in differences_from_here(nodes.hosts, nodes.here)
        ]
        parts += [f'<p class="alpa-warning">{escape(text)}</p>' for text in warnings if attachment.busy]
        parts.append(table_html(host_rows(nodes.hosts), None))
        if nodes.links:
            parts.append(table_html(link_rows(nodes.links), None))
    return f'<div class="alpa-run-status alpa-attachment">{"".join(parts)}</div>'


def _status(attachment: Attachment) -> str:
    if attachment.fault is not None:
        return fault_html(attachment.fault)
    address = f"<code>{escape(attachment.address)}</code>"
    progress, nodes = attachment.progress, attachment.nodes
    if attachment.cancelled:
        text = f"Cancelled: the links of {address} are not measured."
    elif progress is not None and attachment.busy:
        text = (
            f'<progress aria-label="Links" max="{progress.total}" value="{progress.done}"></progress> measuring links: '
            f"{progress.done} of {progress.total}"
        )
    elif attachment.busy or nodes is None:
        text = f"asking {address} for its hosts…"
    else:
        text = f"As a cluster: <b>{escape(str(attachment.cluster))}</b>, of {address}."
        text += "".join(f" {escape(remark)}" for remark in attachment.remarks)
    return f'<p role="status">{text}</p>'


SECONDS = 30


class ProfilePanel:
    """Times kernels, says how much of the plan's time is timed, and of what that is."""

    def __init__(self, profiling: Profiling) -> None:
        self._profiling = profiling
        said = CONTROLS["kernels"]
        self.seconds = whole_field(**said["seconds"], most=100_000, value=SECONDS)
        self.start = plain_button(**said["start"], press=self._start)
        self.cancel = plain_button(**said["cancel"], press=profiling.cancel, disabled=True)
        self.found = W.HTML()
        line = box("alpa-attach-line", self.seconds, self.start, self.cancel)
        self.heading, group = fold(*said["group"].values(), line, self.found, expanded=False)
        self.widget = box("alpa-attached", self.heading, group, kind=W.VBox)

    def show(self, state: State) -> None:
        """Update buttons and status."""
        times = state.kernel_times
        busy = times is not None and times.busy
        self.start.disabled, self.cancel.disabled = busy or state.plan is None, not busy
        sentence = "" if state.plan is None else measured_sentence(state.plan)
        shown = _times_html(times) + (f'<p class="alpa-share">{escape(sentence)}</p>' if sentence else "")
        if shown != self.found.value:
            self.found.value = shown

    def _start(self) -> None:
        self._profiling.start(float(self.seconds.value or SECONDS))


def _times_html(times: KernelTimes | None) -> str:
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
