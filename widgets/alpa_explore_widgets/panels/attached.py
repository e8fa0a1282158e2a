"""Attached hosts: the address of a Dask scheduler, tables of its hosts and links, and a button that plans for them."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as W

from alpa_explore_widgets.elements.fields import Button, TextField
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
        self.attach = Button(
            lambda: attaching.start(self.address.value),
            description="Attach",
            hint="Find the hosts of this scheduler and measure their links; nothing is trained",
        )
        self.cancel = Button(attaching.cancel, description="Cancel", hint="Stop measuring links", disabled=True)
        self.plan_for_these = Button(
            self._plan_for_these,
            description="Plan for these",
            hint="Plan for these hosts with the measured links, and run on them by Dask",
            disabled=True,
        )
        for button in (self.attach, self.cancel, self.plan_for_these):
            button.add_class("alpa-plain")
        self.found = W.HTML()
        line = W.HBox([self.address, self.attach, self.cancel, self.plan_for_these])
        line.add_class("alpa-attach-line")
        heading, group = fold(
            "Attached hosts",
            "Hosts with a Dask worker: devices, memory, versions, links.",
            line,
            self.found,
            expanded=False,
        )
        self.heading = heading
        self.widget = W.VBox([heading, group])
        self.widget.add_class("alpa-attached")
        self._shown: Attachment | None = None

    def show(self, state: State) -> None:
        """Update buttons and tables."""
        attachment = state.attachment
        busy = attachment is not None and attachment.busy
        self.attach.disabled, self.cancel.disabled = busy, not busy
        ready = attachment is not None and attachment.cluster is not None
        self.plan_for_these.disabled = not ready
        (self.plan_for_these.add_class if ready else self.plan_for_these.remove_class)("alpa-call")
        if attachment is not self._shown:
            self._shown = attachment
            self.found.value = "" if attachment is None else attachment_html(attachment)

    def _plan_for_these(self) -> None:
        if self._shown is not None and self._shown.nodes is not None:
            self._plan(self._shown.nodes.scheduler)


def attachment_html(attachment: Attachment) -> str:
    """Progress, tables of hosts and links, and the reason where the planner cannot plan for them."""
    from alpa_explore.attached.hosts import differences, differences_from_here
    from alpa_explore.attached.tables import host_rows, link_rows

    parts = [_status(attachment)]
    nodes = attachment.nodes
    if nodes is not None:
        warnings = [f"Hosts differ. {text}." for text in differences(nodes.hosts)]
        warnings += [
            f"Hosts differ from this kernel. {text}." for text in differences_from_here(nodes.hosts, nodes.here)
        ]
        parts += [f'<p class="alpa-warning">{escape(text)}</p>' for text in warnings if attachment.busy]
        parts.append(_table("Hosts", host_rows(nodes.hosts)))
        if nodes.links:
            parts.append(_table("Links", link_rows(nodes.links)))
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


def _table(caption: str, rows: Sequence[dict[str, Any]]) -> str:
    names = list(rows[0])
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(row[name]))}</td>' for name in names)}</tr>" for row in rows)
    return (
        f'<div class="alpa-table" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
