"""What the functions of the course return: a card, drawn as HTML in a notebook and as text on a terminal.

Texts are paragraphs, separated by blank lines, with `code`, **bold** and *stressed* words, lines that begin with
'- ', and blocks of code between lines of ```. Everything is escaped: numbers and names of a student are no HTML.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, TypeAlias

Look: TypeAlias = Literal["question", "right", "wrong", "hint", "solution", "plain"]
_SIGNS: dict[Look, str] = {"question": "?", "right": "✓", "wrong": "✗", "hint": "→", "solution": "=", "plain": "·"}
"""Colour is never the only sign."""
_COLOURS: dict[Look, str] = {
    "question": "#0072b2",
    "right": "#009e73",
    "wrong": "#d55e00",
    "hint": "#e69f00",
    "solution": "#0072b2",
    "plain": "#888888",
}
_WIDTH = 100
_CODE = re.compile(r"`([^`]+)`")
_BOLD = re.compile(r"\*\*(\S[^*]*)\*\*")
_STRESS = re.compile(r"\*(\w[^*]*)\*")


@dataclass(frozen=True, slots=True)
class Fold:
    """A part of a card that is closed until it is asked for; a terminal shows it at the end."""

    summary: str
    text: str


@dataclass(frozen=True, slots=True)
class Card:
    """A title, a text, and parts behind a fold."""

    look: Look
    title: str
    text: str
    folds: Sequence[Fold] = field(default=(), kw_only=True)
    data: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """For the script of the website: data attributes."""

    def _repr_html_(self) -> str:
        colour = _COLOURS[self.look]
        folds = "".join(
            f'<details style="margin-top:.5em"><summary style="cursor:pointer">{escape(fold.summary)}</summary>'
            f"{text_html(fold.text)}</details>"
            for fold in self.folds
        )
        data = "".join(f' data-{name}="{escape(value)}"' for name, value in self.data.items())
        return (
            f'<div class="alpa-card alpa-{self.look}"{data} style="border:1px solid {colour};border-left-width:5px;'
            'border-radius:4px;padding:.5em 1em;margin:.3em 0;max-width:52em;line-height:1.5">'
            f'<div style="font-weight:600"><span aria-hidden="true">{_SIGNS[self.look]}</span> '
            f"{escape(self.title)}</div>{text_html(self.text)}{folds}</div>"
        )

    def __str__(self) -> str:
        parts = [f"{_SIGNS[self.look]} {self.title}", text_plain(self.text)]
        for fold in self.folds:
            parts += [f"{fold.summary}:", textwrap.indent(text_plain(fold.text), "  ")]
        return "\n".join(part for part in parts if part)

    __repr__ = __str__


def text_html(text: str) -> str:
    """The text of a card as HTML."""
    html = []
    for kind, body in _blocks(text):
        if kind == "code":
            html.append(f'<pre style="overflow-x:auto;margin:.5em 0"><code>{escape(body)}</code></pre>')
        elif kind == "list":
            items = "".join(f"<li>{inline_html(line)}</li>" for line in body.splitlines())
            html.append(f'<ul style="margin:.4em 0;padding-left:1.4em">{items}</ul>')
        else:
            html.append(f'<p style="margin:.4em 0">{inline_html(body)}</p>')
    return "".join(html)


def text_plain(text: str) -> str:
    """The text of a card for a terminal."""
    parts = []
    for kind, body in _blocks(text):
        if kind == "code":
            parts.append(textwrap.indent(body, "    "))
        elif kind == "list":
            parts.append("\n".join(f"  - {_unmarked(line)}" for line in body.splitlines()))
        else:
            parts.append(textwrap.fill(_unmarked(body), _WIDTH))
    return "\n\n".join(parts)


def _blocks(text: str) -> list[tuple[Literal["code", "list", "paragraph"], str]]:
    blocks: list[tuple[Literal["code", "list", "paragraph"], str]] = []
    for place, part in enumerate(re.split(r"^```\w*\n?", text, flags=re.MULTILINE)):
        if place % 2:
            blocks.append(("code", part.strip("\n")))
            continue
        for paragraph in re.split(r"\n\s*\n", part.strip()):
            lines = paragraph.splitlines()
            if lines and all(line.startswith("- ") for line in lines):
                blocks.append(("list", "\n".join(line[2:] for line in lines)))
            elif lines:
                blocks.append(("paragraph", " ".join(lines)))
    return blocks


def inline_html(text: str) -> str:
    """A line of such a text as HTML."""
    return "".join(
        f"<code>{escape(part)}</code>"
        if place % 2
        else _STRESS.sub(r"<em>\1</em>", _BOLD.sub(r"<b>\1</b>", escape(part)))
        for place, part in enumerate(_CODE.split(text))
    )


def _unmarked(text: str) -> str:
    parts = enumerate(_CODE.split(text))
    return "".join(part if place % 2 else _STRESS.sub(r"\1", _BOLD.sub(r"\1", part)) for place, part in parts)
