"""Attached hosts: the address of a Dask scheduler, tables of its hosts and links, and a button that plans for them."""

from collections.abc import Callable
from html import escape

import ipywidgets as W

from alpa_explore_widgets.elements.fields import TextField, plain_button
from alpa_explore_widgets.elements.page_widget import box, set_class
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.panels.messages import fault_html
from alpa_explore_widgets.panels.setting_controls import fold
from alpa_explore_widgets.session.runs import Attaching
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.session.training_run import Attachment


class AttachedPanel:
    """Attaches hosts, shows them, and plans for them. `plan` is called with the address of their scheduler."""

    def __init__(self, attaching: Attaching, plan: Callable[[str], None]) -> None:
        self._attaching, self._plan = attaching, plan
        self.address = TextField(
            label="Attach",
            hint="Address of a Dask scheduler: its hosts are listed, and the links between them measured.",
            example="tcp://127.0.0.1:8786",
        )
        hint = "Find the hosts of this scheduler and measure their links; nothing is trained"
        self.attach = plain_button("Attach", hint, lambda: attaching.start(self.address.value))
        self.cancel = plain_button("Cancel", "Stop measuring links", attaching.cancel, disabled=True)
        hint = "Plan for these hosts with the measured links, and run on them by Dask"
        self.plan_for_these = plain_button("Plan for these", hint, self._plan_for_these, disabled=True)
        self.found = W.HTML()
        line = box("alpa-attach-line", self.address, self.attach, self.cancel, self.plan_for_these)
        hint = "Hosts with a Dask worker: devices, memory, versions, links."
        self.heading, group = fold("Attached hosts", hint, line, self.found, expanded=False)
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
