"""Text of a plan made safe for a terminal or a browser: the names in a plan file may come from a stranger."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` on one line, with characters that a terminal or a browser would act on replaced by '�'."""
    return "".join(c if c.isprintable() else "�" for c in text.replace("\n", " ").replace("\t", " "))
