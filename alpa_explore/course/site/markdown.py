"""Text cells as HTML: paragraphs, lists, tables, code; links to notebooks lead to pages; formulas as MathML, which
browsers draw without a library. The part of LaTeX that lessons use:

    x_i^2, \\frac{a}{b}, \\sqrt{x}, \\sum_{i=1}^{n}, \\max_i, Greek letters, \\text{…}, \\left( … \\right),
    \\underbrace{a}_{b}, \\begin{cases} … & … \\\\ … \\end{cases}, the same with aligned

Three letters and more that stand together are a word, such as FLOP or max, and set upright. A command that is not known
is an error that names it, so that no formula is shown half.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import Any

import mistune
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from alpa_explore.errors import CourseError

_TOKEN = re.compile(r"\\begin\{\w+\*?\}|\\end\{\w+\*?\}|\\[A-Za-z]+|\\.|[A-Za-z]{3,}|\s+|\d+(?:[.,]\d+)*|.", re.DOTALL)
_GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi "
    "varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell"
)
_LETTERS = dict(zip(_GREEK.split(" "), "αβγδϵεζηθικλμνξπρστυϕφχψωΓΔΘΛΞΠΣΦΨΩℓ", strict=True))
_SIGNS = """
    cdot · times × le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ equiv ≡ in ∈ notin ∉ subset ⊂ subseteq ⊆ cup ∪ cap ∩
    to → rightarrow → Rightarrow ⇒ leftarrow ← mapsto ↦ pm ± div ÷ ldots … dots … cdots ⋯ infty ∞ forall ∀ exists ∃
    partial ∂ nabla ∇ mid | lceil ⌈ rceil ⌉ lfloor ⌊ rfloor ⌋ langle ⟨ rangle ⟩ odot ⊙ oplus ⊕ otimes ⊗ ll ≪ gg ≫
    propto ∝ wedge ∧ vee ∨ emptyset ∅ setminus ∖ colon : vert | Vert ‖ star ⋆ ast ∗ prime ′ iff ⟺ implies ⟹
    Leftrightarrow ⇔ leftrightarrow ↔ uparrow ↑ downarrow ↓ lor ∨ land ∧ neg ¬ circ ∘ bullet • cdotp · sim ∼ top ⊤
    """.split()
_OPERATORS = dict(zip(_SIGNS[::2], _SIGNS[1::2], strict=True))
"""Command -> sign."""
_LARGE = {"sum": "∑", "prod": "∏", "bigcup": "⋃", "int": "∫"}
_NAMES = ("min", "max", "log", "exp", "ln", "arg", "lim", "sup", "inf", "det", "mod", "gcd")
_SPACES = {",": 0.17, ":": 0.22, ";": 0.28, " ": 0.25, "!": -0.17, "quad": 1.0, "qquad": 2.0}
_SIZES = ("big", "Big", "bigl", "bigr", "Bigl", "Bigr", "bigg", "Bigg", "biggl", "biggr", "displaystyle", "limits")
_TEXTS = {"text": "", "mathrm": "", "operatorname": "", "textbf": "bold", "mathbf": "bold", "mathit": "", "mathcal": ""}
_ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~", "vec": "→", "overline": "¯"}


def formula_html(latex: str, *, block: bool) -> str:
    """A formula as MathML. CourseError for a command that is not known, or braces that do not match."""
    parser = _Parser(latex)
    body = parser.row(until=None)
    display = ' display="block"' if block else ""
    return f"<math{display}><mrow>{body}</mrow></math>"


class _Parser:
    """Reads a formula from left to right."""

    def __init__(self, latex: str) -> None:
        self.latex = latex
        self.tokens: list[str] = _TOKEN.findall(latex)
        self.at = 0

    def error(self, found: str) -> CourseError:
        return CourseError(
            "A formula cannot be shown",
            found=f"{found} in ${self.latex.strip()}$",
            remedy="Write it with other commands, or add the command to alpa_explore/course/site/markdown.py.",
        )

    def peek(self) -> str | None:
        """The next token that is no space; None at the end."""
        while self.at < len(self.tokens) and self.tokens[self.at].isspace():
            self.at += 1
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def next(self) -> str:
        token = self.peek()
        if token is None:
            raise self.error("its end, too early,")
        self.at += 1
        return token

    def row(self, until: str | None) -> str:
        """Everything up to the token `until`, which is read too."""
        parts = []
        while (token := self.peek()) != until:
            if token is None or token in ("}", r"\right") or token.startswith(r"\end"):
                raise self.error(f"{until or token or 'an end'!r}, out of place,")
            parts.append(self.scripted())
        if until is not None:
            self.at += 1
        return "".join(parts)

    def scripted(self) -> str:
        """An atom with its sub- and superscript; above and below where it is a sum or a name such as min."""
        token = self.peek() or ""
        limits = token.removeprefix("\\") in (*_LARGE, *_NAMES, "underbrace", "overbrace") and token.startswith("\\")
        base = self.atom()
        while self.peek() == r"\limits":
            self.at += 1
        scripts: dict[str, str] = {}
        while (mark := self.peek()) in ("_", "^", "'"):
            self.at += 1
            assert mark is not None
            place = "^" if mark == "'" else mark
            if place in scripts:
                raise self.error(f"a second {mark!r}")
            scripts[place] = "<mo>′</mo>" if mark == "'" else self.argument()
        low, high = scripts.get("_"), scripts.get("^")
        tags = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
        if low is not None and high is not None:
            return f"<{tags[2]}>{base}{low}{high}</{tags[2]}>"
        if low is not None:
            return f"<{tags[0]}>{base}{low}</{tags[0]}>"
        return f"<{tags[1]}>{base}{high}</{tags[1]}>" if high is not None else base

    def argument(self) -> str:
        """What a command or a script applies to: a group, a command, or one character; 12 is 1, then 2."""
        token = self.peek() or ""
        if len(token) > 1 and token[0].isdigit():
            self.tokens[self.at] = token[1:]
            return f"<mn>{token[0]}</mn>"
        return self.atom()

    def atom(self) -> str:
        token = self.next()
        if token == "{":
            return f"<mrow>{self.row(until='}')}</mrow>"
        if token.startswith(r"\begin"):
            return self.table(token[7:-1])
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        fixed = ' stretchy="false"' if token in "()[]|" else ""
        return f"<mo{fixed}>{escape({'-': '−', '*': '∗'}.get(token, token))}</mo>"

    def command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{_OPERATORS[name]}</mo>"
        if name in _LARGE:
            return f'<mo largeop="true">{_LARGE[name]}</mo>'
        if name in _NAMES:
            if self.peek() in ("_", "^"):
                return f"<mo>{name}</mo>"
            space = "" if self.peek() in ("(", "[", r"\left", "}", None) else '<mspace width="0.17em"/>'
            return f'<mi mathvariant="normal">{name}</mi><mo>&#x2061;</mo>{space}'
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}em"/>'
        if name in _SIZES:
            return self.atom()
        if name in _TEXTS:
            return self.text(_TEXTS[name])
        if name == "tag":
            return f'<mspace width="2em"/><mtext>(</mtext>{self.text("")}<mtext>)</mtext>'
        if name in _ACCENTS:
            return f'<mover accent="true">{self.atom()}<mo>{_ACCENTS[name]}</mo></mover>'
        if name in ("frac", "tfrac", "dfrac"):
            return f"<mfrac>{self.argument()}{self.argument()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.argument()}</msqrt>"
        if name == "underbrace":
            return f'<munder>{self.atom()}<mo stretchy="true">⏟</mo></munder>'
        if name == "overbrace":
            return f'<mover>{self.atom()}<mo stretchy="true">⏞</mo></mover>'
        if name == "left":
            return self.fence()
        if name in ("{", "}", "%", "_", "#", "&", "$", "|"):
            return f'<mo stretchy="false">{escape("‖" if name == "|" else name)}</mo>'
        raise self.error(f"the command \\{name}")

    def fence(self) -> str:
        """Brackets that grow with what they hold."""
        opening = self.bracket()
        body = self.row(until=r"\right")
        return f"<mrow>{opening}{body}{self.bracket()}</mrow>"

    def bracket(self) -> str:
        token = self.next()
        if token == ".":
            return ""
        sign = _OPERATORS.get(token[1:], token[1:]) if token.startswith("\\") else token
        return f'<mo stretchy="true" fence="true">{escape(sign)}</mo>'

    def text(self, variant: str) -> str:
        """The words between the next braces, with their spaces."""
        if self.next() != "{":
            raise self.error("a text without braces")
        words = []
        while self.at < len(self.tokens) and (token := self.tokens[self.at]) != "}":
            words.append(" " if token.isspace() else token.removeprefix("\\"))
            self.at += 1
        if self.next() != "}":
            raise self.error("a text without an end")
        style = ' style="font-weight:bold"' if variant else ""
        return f"<mtext{style}>{escape(''.join(words)).replace(' ', '&#160;')}</mtext>"

    def table(self, kind: str) -> str:
        """cases, aligned or matrix: cells between & and rows between \\\\."""
        kind = kind.rstrip("*")
        if kind not in ("cases", "aligned", "align", "matrix", "pmatrix", "bmatrix"):
            raise self.error(f"the environment {kind}")
        rows: list[list[str]] = [[""]]
        while not (token := self.peek() or "").startswith(r"\end"):
            if token in ("&", r"\\"):
                self.at += 1
                rows[-1].append("") if token == "&" else rows.append([""])
            else:
                rows[-1][-1] += self.scripted()
        self.at += 1
        sides = ["right", "left"] if kind in ("aligned", "align") else ["left", "left"] if kind == "cases" else []
        cells = "".join(
            "<mtr>"
            + "".join(
                f'<mtd style="text-align:{sides[place % 2] if sides else "center"}">{cell}</mtd>'
                for place, cell in enumerate(row)
            )
            + "</mtr>"
            for row in rows
            if any(row)
        )
        opening, closing = {"cases": ("{", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]")}.get(kind, ("", ""))
        fences = [f'<mo stretchy="true" fence="true">{sign}</mo>' if sign else "" for sign in (opening, closing)]
        return f"<mrow>{fences[0]}<mtable>{cells}</mtable>{fences[1]}</mrow>"


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
