"""What the search of the website looks through: the sections of its pages as plain text."""

from __future__ import annotations

import json
import re
from html import unescape

_HEADING = re.compile(r'<h[1-3] id="([^"]*)">(.*?)</h[1-3]>', re.DOTALL)
_DROPPED = re.compile(r"<(math|pre|figure|details|form|script|style|aside)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_SPACES = re.compile(r"\s+")


def sections_of(page: str, title: str, body: str) -> list[list[str]]:
    """[address, title of the page, heading, words] of each section of a page; without code, formulas and forms."""
    headings = list(_HEADING.finditer(body))
    ends = [*(heading.start() for heading in headings[1:]), len(body)]
    return [
        [f"{page}.html#{heading[1]}", title, _words(heading[2]), _words(body[heading.end() : end])]
        for heading, end in zip(headings, ends, strict=True)
    ]


def index_script(sections: list[list[str]]) -> str:
    """As a script, since a page that is opened from a file may load nothing else."""
    return f"window.courseIndex = {json.dumps(sections, ensure_ascii=False, separators=(',', ':'))};\n"


def _words(html: str) -> str:
    return _SPACES.sub(" ", unescape(_TAG.sub(" ", _DROPPED.sub(" ", html)))).strip()
