"""Linear recurrences of Hugging Face's models, replaced by the operators of `tracing.fused`: RWKV's time mix and the
selective scan of Mamba, Falcon Mamba, Jamba and Zamba.

Without their kernels for GPUs, transformers has loops of Python over positions for them, each turn a few operators. A
function of transformers is replaced where it gives what the operator gives on a few numbers; one that does not, in
another version of transformers, is left as it is: unrolled, and the graph's warnings say so. So is a time mix that goes
on from a state.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from alpa_explore.tracing.fused import selective_scan as scan
from alpa_explore.tracing.fused import wkv

_Function = Callable[..., Any]
_RWKV, _TIME_MIX = "transformers.models.rwkv.modeling_rwkv", "rwkv_linear_attention_cpu"
_MAMBA = tuple(f"transformers.models.{name}.modeling_{name}" for name in ("mamba", "falcon_mamba", "jamba", "zamba"))
_SCAN = "mamba_selective_scan"


@contextmanager
def whole_linear_scans() -> Iterator[None]:
    """While this is entered, they are one operator in the models that are loaded."""
    known = ((_RWKV, _TIME_MIX, _time_mix, _same_time_mix), *((name, _SCAN, _scan, _same_scan) for name in _MAMBA))
    with ExitStack() as stack:
        for library, name, replacement, same in known:
            found = getattr(sys.modules.get(library), name, None)
            if found is not None and same(inspect.unwrap(found)):
                stack.enter_context(patch.object(sys.modules[library], name, replacement(found)))
        yield


def _time_mix(found: _Function) -> _Function:
    def rwkv_linear_attention(
        time_decay: Tensor,
        time_first: Tensor,
        key: Tensor,
        value: Tensor,
        state: Any = None,
        return_state: bool = False,
    ) -> Any:
        if state is not None or return_state:
            return found(time_decay, time_first, key, value, state, return_state)
        return wkv.wkv(-torch.exp(time_decay), time_first, key, value), None

    return rwkv_linear_attention


def _scan(found: _Function) -> _Function:
    def mamba_selective_scan(
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor | None = None,
        z: Tensor | None = None,
        delta_bias: Tensor | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
        **others: Any,
    ) -> Any:
        if any(value is not None and not isinstance(value, bool) for value in others.values()):  # packed sequences
            options = {"delta_softplus": delta_softplus, "return_last_state": return_last_state, **others}
            return found(hidden_states, dt, A, B, C, D, z, delta_bias, **options)
        made = scan.selective_scan(hidden_states, dt, A, B, C, D, z, delta_bias, delta_softplus)
        return made if return_last_state else made[0]

    return mamba_selective_scan


def _same_time_mix(found: _Function) -> bool:
    """Whether `found` gives what the operator gives, on a few numbers."""
    key, value = _numbers(2, 5, 3, start=-4.0), _numbers(2, 5, 3, start=1.0)
    arguments = _numbers(3, start=-2.0), _numbers(3, start=0.5), key, value
    return _agree(lambda: found(*arguments)[0], lambda: _time_mix(found)(*arguments)[0])


def _same_scan(found: _Function) -> bool:
    """The same with all that a call can have, and with as little as it can have."""
    x, delta, z = (_numbers(2, 3, 5, start=start) for start in (-2.0, -1.0, 0.5))
    a, b, c = -_numbers(3, 4, start=0.5), _numbers(2, 4, 5, start=-1.0), _numbers(2, 4, 5, start=-0.5)
    full = {"D": _numbers(3, start=1.0), "z": z, "delta_bias": _numbers(3, start=-0.5), "delta_softplus": True}

    def results(function: _Function) -> Tensor:
        made, last = function(x, delta, a, b, c, **full, return_last_state=True)
        return torch.cat([t.flatten() for t in (made, last, function(x, delta.abs(), a, b, c))])

    return _agree(lambda: results(found), lambda: results(_scan(found)))


def _agree(theirs: Callable[[], Tensor], ours: Callable[[], Tensor]) -> bool:
    with _disable_current_modes(), torch.no_grad():
        try:
            expected = theirs()
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            return False  # it takes other arguments, or more of them
        found = ours()
        return expected.shape == found.shape and torch.allclose(found, expected.to(found.dtype), rtol=1e-6, atol=1e-9)


def _numbers(*shape: int, start: float) -> Tensor:
    """Numbers that fp32 holds, too (transformers casts to it), in no order."""
    count = int(torch.Size(shape).numel())
    numbers = torch.arange(count, dtype=torch.float64, device="cpu")
    return ((numbers * 7 % (2 * count + 1)) / 8 % 3 + start).reshape(shape)
