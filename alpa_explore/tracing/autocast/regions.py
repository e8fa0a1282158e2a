"""`torch.autocast` in a model: on the CPU tensors of a trace, a region of any device casts as it does on that device.

torch has a region end in nothing where its device is missing, and casts only tensors that are on it. A trace has CPU
tensors on every machine, so here the innermost region says what is cast, whatever device it names: "cpu" by the rules
of the CPU, another device by those of accelerators (`rules`). `enabled=False` and every dtype are as written.

A region that was made before the model is traced (a decorator, an attribute) is known to be disabled only by torch: by
`enabled=False`, or because the machine that made it has no such device. Then the source of the decorated function says
which, or the model is refused.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.amp.autocast_mode import autocast
from torch.library import Library

from alpa_explore.errors import CaptureError
from alpa_explore.tracing.autocast.kernels import Casts, is_cast, region_dtype, registered

_ON_CPU = "cpu"
_PRECISION = "or leave autocast out and give precision='bf16' to capture"


@contextmanager
def autocast_as_written() -> Iterator[None]:
    """While this is entered, regions of autocast have an effect on CPU tensors, whatever device they name.

    CaptureError where it is entered inside a region, or where nobody can know whether a region is enabled.
    """
    _refuse_outer_region()
    regions = _Regions()
    with ExitStack() as stack:
        for name, replaced in (("__init__", _made), ("__enter__", regions.entered), ("__exit__", regions.left)):
            stack.enter_context(patch.object(autocast, name, replaced(getattr(autocast, name))))
        stack.callback(regions.close)
        yield


def lowered(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors as an operator gets them that computes in the dtype of the region; as they are outside of all."""
    if not torch.is_autocast_enabled(_ON_CPU):
        return tensors
    return tuple(t.to(region_dtype()) if is_cast(t) else t for t in tensors)


def _refuse_outer_region() -> None:
    for device in ("cuda", _ON_CPU):
        if torch.is_autocast_enabled(device):
            raise CaptureError(
                "A model cannot be captured inside a region of autocast, which torch ignores where the device is "
                "missing",
                found=f"torch.autocast({device!r}, dtype={torch.get_autocast_dtype(device)}) around the capture",
                remedy=f"Write the region in the model's forward, {_PRECISION}.",
            )


@dataclass(slots=True)
class _Regions:
    """The regions that are entered, and the rules that are registered for them."""

    casts: Casts = field(default_factory=Casts)
    saved: list[tuple[dict[str, tuple[bool, torch.dtype]], bool]] = field(default_factory=list)
    """For each region what was set before for every device, and whether rules of accelerators were registered."""
    library: Library | None = None

    def entered(self, original: Callable[[autocast], Any]) -> Callable[[autocast], Any]:
        def enter(region: autocast) -> Any:
            enabled = _is_enabled(region)
            devices = {_ON_CPU, region.device, *(device for state, _ in self.saved for device in state)}
            state = {d: (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices}
            result = original(region)
            self.saved.append((state, self.library is not None))
            for device in devices:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, region.fast_dtype)
            if enabled:
                self._use_rules(accelerator=region.device != _ON_CPU)
            return result

        return enter

    def left(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(region: autocast, *raised: Any) -> Any:
            result = original(region, *raised)
            state, accelerator = self.saved.pop()
            for device, (enabled, dtype) in state.items():
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            if self.saved:
                self._use_rules(accelerator=accelerator)
            else:
                self.casts.clear()  # the rules stay for the next region: registering takes longer than a region
            return result

        return leave

    def close(self) -> None:
        """End what regions have set."""
        self._use_rules(accelerator=False)

    def _use_rules(self, *, accelerator: bool) -> None:
        if accelerator and self.library is None:
            self.library = registered(self.casts)
        elif not accelerator and self.library is not None:
            self.library._destroy()  # type: ignore[no-untyped-call]  # torch has no annotation
            self.library = None


def _made(original: Callable[..., None]) -> Callable[..., None]:
    """A region that remembers what was asked for, on a machine without its device, too."""

    def make(region: autocast, *args: Any, **kwargs: Any) -> None:
        asked = inspect.signature(original).bind(region, *args, **kwargs)
        asked.apply_defaults()
        enabled = bool(asked.arguments["enabled"])
        if asked.arguments["device_type"] == "cuda":  # torch asks the machine whether there is one, and disables it
            asked.arguments["enabled"] = False
        original(*asked.args, **asked.kwargs)
        if asked.arguments["device_type"] == "cuda":
            region._enabled = enabled
        region._asked = True  # type: ignore[attr-defined]  # ours; absent from regions that were made before

    return make


def _is_enabled(region: autocast) -> bool:
    """Whether a region was asked to cast. CaptureError where that is not known."""
    if region._enabled or region.device != "cuda" or getattr(region, "_asked", False) or torch.cuda.is_available():
        return bool(region._enabled)
    decorated = _decorated(region, inspect.currentframe())
    enabled = None if decorated is None else _asked_in(decorated)
    if enabled is None:
        where = "an object" if decorated is None else f"the decorator of {decorated.__qualname__}"
        raise CaptureError(
            "Whether a region of autocast is enabled is not known: torch disabled it when it was made, for lack of a "
            "GPU, or it was asked to",
            found=f"torch.autocast('cuda', dtype={region.fast_dtype}), {where} made before the capture",
            remedy=f"Write `with torch.autocast('cuda', …):` in the model's forward, {_PRECISION}.",
        )
    return enabled


def _decorated(region: autocast, frame: FrameType | None) -> Any:
    """The function that `region` decorates, where it is entered by the call of such a function."""
    while frame is not None:
        if frame.f_code.co_name == "decorate_autocast" and frame.f_locals.get("autocast_instance") is region:
            return frame.f_locals["func"]
        frame = frame.f_back
    return None


def _asked_in(function: Any) -> bool | None:
    """What the decorator of a function says about `enabled`; None where its source does not say it."""
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):  # no source, or not of one function
        return None
    calls = [
        node
        for decorator in getattr(definition, "decorator_list", ())
        for node in ast.walk(decorator)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("autocast")
    ]
    if len(calls) != 1:
        return None
    (call,) = calls
    given = [keyword.value for keyword in call.keywords if keyword.arg == "enabled"]
    if given:
        return bool(given[0].value) if isinstance(given[0], ast.Constant) else None
    # `enabled` is the third of torch.autocast, the first of torch.cuda.amp.autocast.
    unclear = len(call.args) > 2 or any(k.arg is None for k in call.keywords) or ".cuda.amp." in ast.unparse(call.func)
    return None if unclear and (call.args or any(k.arg is None for k in call.keywords)) else True
