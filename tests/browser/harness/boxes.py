"""Where the parts of a page are: their rectangles in pixels of the window."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator

_BOXES = """(root, selector) => [...root.querySelectorAll(selector)]
  .map((e) => [e, e.getBoundingClientRect()])
  .filter(([e, b]) => b.width > 0 && b.height > 0 && getComputedStyle(e).visibility !== 'hidden')
  .map(([e, b]) => [selector, (e.textContent ?? '').slice(0, 30), b.left, b.top, b.right, b.bottom])"""


@dataclass(frozen=True, slots=True)
class Box:
    """The rectangle of an element, with what found it and the beginning of its text."""

    selector: str
    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def overlap(self, other: Box) -> tuple[float, float]:
        """Width and height of the common part; negative for a distance."""
        width = min(self.right, other.right) - max(self.left, other.left)
        return width, min(self.bottom, other.bottom) - max(self.top, other.top)

    def covers(self, other: Box, slack: float = 1.0) -> bool:
        """Whether both have more than `slack` pixels in common in each direction."""
        return min(self.overlap(other)) > slack


def boxes(within: Locator, *selectors: str) -> list[Box]:
    """The boxes of all shown elements that match a selector."""
    return [Box(*found) for selector in selectors for found in within.evaluate(_BOXES, selector)]


def box(within: Locator, selector: str) -> Box:
    """The box of the only shown element that matches; AssertionError for none or several."""
    (only,) = boxes(within, selector)
    return only


def rows(found: list[Box]) -> int:
    """In how many rows these elements stand, by the middles of their heights."""
    middles = sorted((b.top + b.bottom) / 2 for b in found)
    return sum(1 for before, after in zip([-1e9, *middles], middles, strict=False) if after - before > 6)
