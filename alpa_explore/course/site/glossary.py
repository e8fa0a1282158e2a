"""The glossary on every page: the first time that a word of it stands in a text, its meaning can be read there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from alpa_explore.course.lessons.notebook import Lesson

_ROW = re.compile(r"^\| \*\*(.+?)\*\*(?: \*?\(.*?\)\*?)? \| (.+?) \|$", re.MULTILINE)
_CELL = re.compile(r"(<td[^>]*>)<strong>(.+?)</strong>")
_MARKUP = re.compile(r"<[^>]+>")
_CLOSED = re.compile(r"<(a|b|strong|code|pre|math|h[1-6]|button|label|form|summary|th)\b.*?</\1>|<[^>]+>", re.DOTALL)
"""What is left as it is: tags, and elements whose words are names or links already."""


def terms_of(glossary: Lesson | None) -> Mapping[str, str]:
    """Word -> meaning, as the glossary has them; none without one. Rows of two words, such as symbols, are left out."""
    texts = () if glossary is None else (cell.source for cell in glossary.cells if cell.kind == "markdown")
    rows = (row for text in texts for row in _ROW.findall(text))
    return {word: meaning for word, meaning in rows if "," not in word}


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
