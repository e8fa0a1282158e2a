"""Text cells as HTML: paragraphs, lists, tables, code, formulas; links to notebooks lead to pages."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from alpa_explore.course.site.formulas import formula_html

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NOTEBOOK = re.compile(r"^([\w./-]+)\.ipynb(#.*)?$")
_TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)


class _Renderer(mistune.HTMLRenderer):
    """mistune's HTML, with formulas as MathML, coloured code, and links between pages."""

    def block_math(self, text: str) -> str:
        return f'<div class="formula">{formula_html(text, block=True)}</div>\n'

    def inline_math(self, text: str) -> str:
        return formula_html(text, block=False)

    def block_code(self, code: str, info: str | None = None) -> str:
        return code_html(code, info.split()[0] if info else "text")

    def link(self, text: str, url: str, title: str | None = None) -> str:
        page = _NOTEBOOK.match(url)
        return super().link(text, f"{page[1]}.html{page[2] or ''}" if page else url, title)


@cache
def _markdown() -> Any:
    renderer = _Renderer(escape=False)
    return mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "math"])


def markdown_html(text: str) -> str:
    """A text cell as HTML. CourseError for a formula that cannot be shown."""
    html: str = _markdown()(_COMMENT.sub("", text))
    return _TABLE.sub(r'<div class="scroll"><table>\1</table></div>', html)


def code_html(code: str, language: str = "python") -> str:
    """Code with the classes of pygments, whose colours are in the style sheet."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    inner = highlight(code.rstrip("\n"), lexer, HtmlFormatter(nowrap=True))
    return f'<pre class="code"><code>{inner.rstrip()}</code></pre>\n'


def code_styles() -> str:
    """The colours of code in both themes, as CSS."""
    light = HtmlFormatter(style="default").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs(':root[data-theme="dark"] .code')
    return f"{light}\n{dark}\n.code, .code .err {{ background: none; border: none; }}"
