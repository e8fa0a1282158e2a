"""Checks of values in a model that only refuse bad inputs: while it is traced they are taken as passed.

These are `if <test of a tensor>: raise …`, `assert <test of a tensor>` and torch's own checks (`torch._check_with`, …).
What a model does with inputs that it accepts does not depend on them.
"""

import ast
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules import transformer

VALUE_ERRORS = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
"""The exceptions of torch when a model reads the value of a traced tensor."""
_TORCH = os.path.dirname(torch.__file__) + os.sep
_READS = frozenset({"__bool__", "item"})


def outcome(function: Any, args: tuple[Any, ...], frame_of: Callable[[], FrameType | None]) -> bool | None:
    """What a read of a tensor as a truth value gives where the model's line, which runs in `frame_of()`, only checks
    inputs; None where it does more, or where it reads a number."""
    name = getattr(function, "__name__", "")
    if name not in _READS or not args or not isinstance(args[0], Tensor):
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
            # Python places the jump of `if not …`, and of any `elif …`, at the statement.
            if position == (node.lineno, node.col_offset) and not isinstance(node.test, ast.BoolOp):
                return isinstance(node.test, ast.UnaryOp)
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
    """While this is entered, torch's own checks of tensors pass, and a mask is taken as causal where that is known."""
    with ExitStack() as stack:
        for tensors in (Tensor, FunctionalTensor):
            stack.enter_context(patch.object(tensors, "__bool__", _unless_checked(tensors.__bool__)))
        stack.enter_context(patch.object(transformer, "_detect_is_causal_mask", _if_known(transformer)))
        for name in ("_check_tensor_all_with", "_check_tensor_all", "_check_with", "_check"):
            stack.enter_context(patch.object(torch, name, _unless_tensor(getattr(torch, name))))
        yield


def _if_known(module: Any) -> Any:
    """torch's own function, and for a mask of unknown values what it says where the mask is not causal: that only
    chooses a faster kernel."""
    kept = module._detect_is_causal_mask

    def detect(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        try:
            return bool(kept(mask, is_causal, size))
        except VALUE_ERRORS:
            return is_causal is True

    return detect


def _unless_checked(kept: Any) -> Any:
    """Whether a tensor is true, and what passes where a function of torch (a loss, a distribution) only checks it."""

    def read(tensor: Tensor) -> bool:
        frame = sys._getframe(1)
        passed = _needed(frame) if frame.f_code.co_filename.startswith(_TORCH) else None
        return bool(kept(tensor)) if passed is None else passed

    return read


def _unless_tensor(kept: Any) -> Any:
    def check(*args: Any, **kwargs: Any) -> None:
        if not any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
            kept(*args, **kwargs)

    return check
