"""The words of the pages: the glossary on each of them, what the search looks through, and what a slide says.

The first time that a word of the glossary stands in a text, its meaning can be read there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape, unescape

from alpa_explore.course.lessons.notebook import Lesson

_ROW = re.compile(r"^\| \*\*(.+?)\*\*( \*\(.*?\)\*)? \| (.+?) \|$", re.MULTILINE)
_CELL = re.compile(r"(<td[^>]*>)<strong>(.+?)</strong>")
_MARKUP = re.compile(r"<[^>]+>")
_CLOSED = re.compile(r"<(a|b|strong|code|pre|math|h[1-6]|button|label|form|summary|th)\b.*?</\1>|<[^>]+>", re.DOTALL)
"""What is left as it is: tags, and elements whose words are names or links already."""
_HEADING = re.compile(r'<h[1-3] id="([^"]*)">(.*?)</h[1-3]>', re.DOTALL)
_DROPPED = re.compile(r"<(math|pre|figure|details|form|script|style|aside)\b.*?</\1>", re.DOTALL)
_SPACES = re.compile(r"\s+")
_FIRST = re.compile(r"<p[ >].*?</p>", re.DOTALL)
_ITEM = re.compile(r"<li>(?:<p>)?\s*<strong>(.*?)</strong>", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[^a-z])")
_CLAUSE = re.compile(r"(?<=[;:,])\s+")
_UNSAID = re.compile(r"<(h[1-6]|details|figure|pre)\b.*?</\1>|<div class=\"buttons\">.*", re.DOTALL)
_BEFORE_MARK = re.compile(r" (?=[.,;?!)])|(?<=\() ")
SLIDE_WORDS = 30
"""Of a slide, beside its title."""


def terms_of(glossary: Lesson | None) -> Mapping[str, str]:
    """Word -> meaning, as the glossary has them; none without one. Left out are rows of two words, such as symbols, and
    words that texts use in another sense, too: those whose row says *(of what)*."""
    texts = () if glossary is None else (cell.source for cell in glossary.cells if cell.kind == "markdown")
    rows = (row for text in texts for row in _ROW.findall(text))
    return {word: meaning for word, of_what, meaning in rows if "," not in word and not of_what}


def anchor(word: str) -> str:
    """The id of a word in the glossary."""
    return "word-" + re.sub(r"\W+", "-", word).strip("-").lower()


def with_anchors(html: str) -> str:
    """The table of the glossary, each word with its id."""
    return _CELL.sub(lambda m: f'{m[1]}<strong id="{anchor(_MARKUP.sub("", m[2]))}">{m[2]}</strong>', html)


class Linker:
    """Links the words of one page, each where it stands first."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self._left = dict(terms)

    def __call__(self, html: str) -> str:
        """The HTML of a text with its words linked."""
        if not self._left:
            return html
        pieces, last = [], 0
        for kept in _CLOSED.finditer(html):
            pieces += [self._linked(html[last : kept.start()]), kept[0]]
            last = kept.end()
        return "".join([*pieces, self._linked(html[last:])])

    def _linked(self, text: str) -> str:
        if not text.strip() or not self._left:
            return text
        return self._pattern().sub(self._link, text)

    def _pattern(self) -> re.Pattern[str]:
        longest = sorted(self._left, key=len, reverse=True)
        return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest))})(s?)(?![\w-])")

    def _link(self, match: re.Match[str]) -> str:
        meaning = self._left.pop(match[1], None)
        if meaning is None:
            return match[0]
        said = escape(re.sub(r"[*`$]|\[(.*?)\]\(.*?\)", r"\1", meaning), quote=True)
        return f'<a class="term" href="glossary.html#{anchor(match[1])}" data-meaning="{said}">{match[0]}</a>'


def sections_of(page: str, title: str, body: str) -> list[list[str]]:
    """[address, title of the page, heading, words] of each section of a page; without code, formulas and forms."""
    headings = list(_HEADING.finditer(body))
    ends = [*(heading.start() for heading in headings[1:]), len(body)]
    return [
        [f"{page}.html#{heading[1]}", title, _words(heading[2]), _words(body[heading.end() : end])]
        for heading, end in zip(headings, ends, strict=True)
    ]


def said(html: str) -> str:
    """What a slide says of a part: its question, else its first sentences, or the bold words of its list."""
    text = _UNSAID.sub("", html)
    paragraphs = [_plain(p) for p in _FIRST.findall(text)]
    asked = [p for p in paragraphs if p.endswith("?")]
    items = ". ".join(_plain(item).rstrip(".:") for item in _ITEM.findall(text))
    best = asked[-1] if asked else (paragraphs or [""])[0]
    if items and not asked and (not paragraphs or text.find("<li>") < text.find("<p")):
        best = f"{items}."
    for cut in (_SENTENCE, _CLAUSE):
        kept = list[str]()
        for sentence in cut.split(best):
            if len(" ".join([*kept, sentence]).split()) > SLIDE_WORDS:
                break
            kept.append(sentence)
        if kept:
            return " ".join(kept).rstrip(",;:") + ("…" if cut is _CLAUSE else "")
    return " ".join([*best.split()[: SLIDE_WORDS - 1], "…"])


def _plain(html: str) -> str:
    return _BEFORE_MARK.sub("", _SPACES.sub(" ", unescape(_MARKUP.sub(" ", html)))).strip()


def index_script(sections: list[list[str]]) -> str:
    """As a script, since a page that is opened from a file may load nothing else."""
    return f"window.courseIndex = {json.dumps(sections, ensure_ascii=False, separators=(',', ':'))};\n"


def _words(html: str) -> str:
    return _SPACES.sub(" ", unescape(_MARKUP.sub(" ", _DROPPED.sub(" ", html)))).strip()
