"""`torch.autocast` in a model: on the CPU tensors of a trace, a region of any device casts as it does on that device.

torch has a region end in nothing where its device is missing, and casts only tensors that are on it. A trace has CPU
tensors on every machine, so here the innermost region says what is cast, whatever device it names: "cpu" by the rules
of the CPU, another device by those of accelerators (`registered`). `enabled=False` and every dtype are as written.

A region that was made before the model is traced (a decorator, an attribute) is known to be disabled only by torch: by
`enabled=False`, or because the machine that made it has no such device. Then the source of the decorated function says
which, or the model is refused.

The rules of an accelerator's autocast are kernels of autocast on the CPU. While they are registered, a region of
autocast on the CPU casts as one on a GPU does; after that the CPU's own kernels are back. As in torch, the cast of a
weight is made once in an outermost region and then read again. The lists of operators are those of
`ATen/autocast_mode.h`, which CUDA, XPU and MPS share; the header comes with torch, and a test compares. The CPU has
other ones, which torch applies itself.
"""

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.amp.autocast_mode import autocast
from torch.library import Library, fallthrough_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

from alpa_explore.errors import CaptureError

LOWER = tuple(
    """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention
    """.split()
)
"""Computed in the dtype of the region."""
FULL = tuple(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
    """.split()
)
"""Computed in float32."""
FULL_RESULT = tuple(
    """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
    """.split()
)
"""Their result is float32, unless the call asks for a dtype."""
FULL_APPENDED = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
"""Called as another overload, which has a dtype: float32."""
WIDEST = tuple(
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    """.split()
)
"""Computed in the widest dtype of their inputs."""
REFUSED = ("binary_cross_entropy",)
"""Not safe in a 16-bit dtype; torch raises."""

_KEY = "AutocastCPU"
_OUTSIDE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Casts:
    """The casts of the outermost region that is entered: one for each weight, as in torch."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def clear(self) -> None:
        """Forget them, where the outermost region ends."""
        self._made.clear()

    def __call__(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """`tensor` in `dtype`, if autocast may cast it: a floating-point tensor, but not float64."""
        if not is_cast(tensor) or tensor.dtype == dtype:
            return tensor
        weight = tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
        kept = weight and dtype == region_dtype() and torch.is_autocast_cache_enabled()
        if kept and id(tensor) in self._made:
            return self._made[id(tensor)][1]
        made: Tensor = torch.ops.aten.to.dtype(tensor, dtype)
        if kept:
            self._made[id(tensor)] = (tensor, made)
        return made


def is_cast(tensor: Tensor) -> bool:
    """Whether autocast may cast a tensor."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64


def region_dtype() -> torch.dtype:
    """The dtype of the region that is entered."""
    return torch.get_autocast_dtype("cpu")


def registered(casts: Casts) -> Library:
    """Register the rules of an accelerator; they end with `_destroy`."""
    library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch has no annotation
    kinds: tuple[tuple[Iterable[str], Callable[[Any, Casts], Callable[..., Any]]], ...] = (
        (LOWER, partial(_in_dtype, dtype=region_dtype)),
        (FULL, partial(_in_dtype, dtype=lambda: torch.float32)),
        (FULL_RESULT, _full_result),
        (FULL_APPENDED, _full_appended),
        (WIDEST, _widest),
        (REFUSED, _refused),
    )
    known: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that a kernel takes the place of another, which is meant
        for names, kind in kinds:
            for name in names:
                known.add(f"aten::{name}")
                library.impl(name, kind(_operator(name), casts), _KEY, allow_override=True)  # type: ignore[no-untyped-call]  # torch has no annotation
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(_KEY):
            if name.startswith("aten::") and name not in known:
                library.impl(name.removeprefix("aten::"), fallthrough_kernel, _KEY, allow_override=True)  # type: ignore[no-untyped-call]  # torch has no annotation
    return library


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _in_dtype(operator: Any, casts: Casts, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _called(operator, args, kwargs, dtype(), casts)

    return kernel


def _full_result(operator: Any, casts: Casts) -> Callable[..., Any]:
    place = next(i for i, argument in enumerate(operator._schema.arguments) if argument.name == "dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if is_cast(args[0]):
            if len(args) > place and args[place] is None:
                args = (*args[:place], torch.float32, *args[place + 1 :])
            elif len(args) <= place and kwargs.get("dtype") is None:
                kwargs["dtype"] = torch.float32
        return _called(operator, args, kwargs, None, casts)

    return kernel


def _full_appended(operator: Any, casts: Casts) -> Callable[..., Any]:
    name = operator._schema.name.removeprefix("aten::") + "." + operator._schema.overload_name
    with_dtype = _operator(FULL_APPENDED[name])

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if not is_cast(args[0]):
            return _called(operator, args, kwargs, None, casts)
        defaults = [a.default_value for a in operator._schema.arguments[len(args) :] if a.name not in kwargs]
        return _called(with_dtype, (*args, *defaults), {**kwargs, "dtype": torch.float32}, None, casts)

    return kernel


def _widest(operator: Any, casts: Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        full = any(isinstance(t, Tensor) and t.dtype == torch.float32 for t in tree_leaves((args, kwargs)))
        return _called(operator, args, kwargs, torch.float32 if full else region_dtype(), casts)

    return kernel


def _refused(operator: Any, casts: Casts) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast, and raise on a GPU: "
            "use binary_cross_entropy_with_logits"
        )

    return kernel


def _called(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype | None, casts: Casts
) -> Any:
    """`operator` without autocast, with its tensors in `dtype` where one is given."""
    with torch._C._ExcludeDispatchKeyGuard(_OUTSIDE):
        if dtype is not None:
            args, kwargs = tree_map_only(Tensor, lambda tensor: casts(tensor, dtype), (args, kwargs))
        return operator(*args, **kwargs)


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
