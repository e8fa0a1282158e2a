"""Checks of values in a model that only refuse bad inputs: while it is traced they are taken as passed.

These are `if <test of a tensor>: raise …`, `assert <test of a tensor>` and torch's own checks (`torch._check_with`, …).
What a model does with inputs that it accepts does not depend on them.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch

_READS = frozenset({"__bool__", "item"})


def outcome(function: Any, args: tuple[Any, ...], frame_of: Callable[[], FrameType | None]) -> bool | None:
    """What a read of a tensor as a truth value gives where the model's line, which runs in `frame_of()`, only checks
    inputs; None where it does more, or where it reads a number."""
    name = getattr(function, "__name__", "")
    if name not in _READS or not args or not isinstance(args[0], torch.Tensor):
        return None
    frame = frame_of() if name == "__bool__" or args[0].dtype == torch.bool else None
    return None if frame is None else _needed(frame)


def _needed(frame: FrameType) -> bool | None:
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    position = _position(frame)
    if not lines or position is None:
        return None
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and _within(position, node):  # pytest moves the test to the statement's start
            return _value(node.test, position, wanted=True)
        if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
            if _within(position, node.test):
                return _value(node.test, position, wanted=False)
            if position == (node.lineno, node.col_offset) and isinstance(node.test, ast.UnaryOp):
                return True  # Python places the jump of `if not …` at the statement
    return None


def _value(test: ast.expr, position: tuple[int, int], *, wanted: bool) -> bool:
    """What the part of `test` at `position` gives where the whole gives `wanted`: the same in `and` and `or`, whose
    every part may give it, the opposite in `not`."""
    inner: Sequence[ast.expr] = test.values if isinstance(test, ast.BoolOp) else ()
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner, wanted = (test.operand,), not wanted
    return next((_value(part, position, wanted=wanted) for part in inner if _within(position, part)), wanted)


def _position(frame: FrameType) -> tuple[int, int] | None:
    """(line, column) of the expression that runs in `frame`."""
    positions = list(frame.f_code.co_positions())
    line, _, column, _ = positions[frame.f_lasti // 2]
    return None if line is None or column is None else (line, column)


def _within(position: tuple[int, int], node: ast.expr | ast.stmt) -> bool:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= position < end


@contextmanager
def passed_checks() -> Iterator[None]:
    """While this is entered, torch's own checks of tensors pass."""
    with ExitStack() as stack:
        for name in ("_check_tensor_all_with", "_check_tensor_all", "_check_with", "_check"):
            stack.enter_context(patch.object(torch, name, _unless_tensor(getattr(torch, name))))
        yield


def _unless_tensor(kept: Any) -> Any:
    def check(*args: Any, **kwargs: Any) -> None:
        if not any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
            kept(*args, **kwargs)

    return check
