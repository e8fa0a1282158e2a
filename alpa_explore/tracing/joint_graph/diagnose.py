"""An exception raised while tracing -> a CaptureError with its place in the model and a remedy."""

from torch._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from alpa_explore.errors import CaptureError
from alpa_explore.tracing.joint_graph.input_checks import VALUE_ERRORS
from alpa_explore.tracing.joint_graph.locate import TracePosition, raised_at

_VALUES = (
    "Tracing has shapes, not values. Replace Python branches on tensor values (if x.sum() > 0, .item(), .tolist(), "
    "loops over nonzero) with tensor operators such as torch.where, or read the value before the model is captured."
)
_SIZED_BY_VALUES = {
    "__getitem__": "Indexing by a mask, x[mask],",
    "__setitem__": "Assigning by a mask, x[mask] = …,",
    "where": "torch.where(mask), with one argument,",
    "nonzero": "nonzero",
    "argwhere": "argwhere",
    "masked_select": "masked_select",
    "unique": "unique",
    "unique_consecutive": "unique_consecutive",
    "repeat_interleave": "repeat_interleave by a tensor",
    "bincount": "bincount",
}
"""Function of torch -> the construct in words."""
_KEEP_ALL = (
    "gives a tensor whose size depends on values, and a plan needs every size. Keep all rows, and mask what they add: "
    "torch.where(mask, x, 0) with three arguments, x * mask, ignore_index of a loss. Tokens of experts: compute each "
    "expert on all tokens, weighted by 0 where it is not chosen, or use those of transformers or "
    "alpa_explore.models.routed_experts, which are one operator."
)
_OF_FUNCTIONS = {
    "cond": "Compute both branches, and choose by torch.where(condition, a, b).",
    "while_loop": "Write the loop in Python, with a fixed number of steps.",
    "map": "Write torch's map as a loop in Python, or as torch.func.vmap.",
    "cov": "Write the covariance out: x = x - x.mean(1, keepdim=True), then x @ x.T / (x.shape[1] - 1).",
    "corrcoef": "Write the correlation out, by x - x.mean(1, keepdim=True) and its length.",
    "associative_scan": "Write the scan as a loop in Python, or by torch.cumsum.",
}
"""Function of torch that cannot be traced: it takes functions, or reads values -> what to write in its place."""
_OUT_OF_MEMORY = "Build the model on the meta device (with torch.device('meta'): model = …); capture needs shapes only."
_BY_MESSAGE = (
    (
        ("unexpected fake buffer", "mixing fake modes"),
        "The model keeps a tensor of one forward pass for the next, outside its modules: behind functools.lru_cache or "
        "in a global. Make it in __init__ and register it as a buffer, or compute it each time.",
    ),
    (
        ("inplace operation", "in-place"),
        "Replace the in-place operation (add_, relu_, x[…] = …) with one that returns a new tensor.",
    ),
    (("numpy",), "Keep the forward pass in torch: NumPy cannot read traced tensors."),
    (
        (
            "mat1 and mat2",
            "shape",
            "size of tensor",
            "sizes of tensors",
            "must match",
            "reduction dim",
            "broadcast",
            "invalid for input",
            "expected input",
            "weight of size",
            "out of range",
            "batch_size",
        ),
        "Check the shapes of the example inputs against what the model expects (they are one microbatch).",
    ),
    (
        ("dtype", "scalar type", "expected tensor for argument", "same type", "Long", "Half", "BF16"),
        "Check the dtypes: token inputs must be int64, others floating-point; precision=None keeps the model's dtypes.",
    ),
    (("allocate", "out of memory"), _OUT_OF_MEMORY),
    (
        ("device", "CUDA enabled", "NVIDIA driver"),
        "Create tensors on the device of the input (device=x.device), not on a fixed one.",
    ),
)


def diagnose(error: Exception, place: TracePosition) -> CaptureError:
    """The CaptureError for an exception that tracing raised at `place`; raise it `from` the exception."""
    operator = _operator(error) or place.function or "none running"
    message = " ".join(str(error).split())[:300] or type(error).__name__
    location = (
        f"operator {operator}, module {place.module or '(the model itself)'}, "
        f"line {raised_at(error.__traceback__) or 'unknown'}: {type(error).__name__}: {message}"
    )
    return CaptureError("The model cannot be traced", found=location, remedy=_remedy(error, message, place.function))


def _operator(error: Exception) -> str:
    return str(getattr(error, "func", ""))


def _remedy(error: Exception, message: str, function: str) -> str:
    name = function.rpartition(".")[2]
    if isinstance(error, DynamicOutputShapeException) or (isinstance(error, VALUE_ERRORS) and name == "masked_select"):
        return f"{_SIZED_BY_VALUES.get(name, name or _operator(error))} {_KEEP_ALL}"
    if name in _OF_FUNCTIONS:
        return _OF_FUNCTIONS[name]
    if isinstance(error, VALUE_ERRORS):
        return _VALUES
    if isinstance(error, UnsupportedOperatorException | UnsupportedFakeTensorException | NotImplementedError):
        return (
            "This operator has no shape rule in torch. Write it with other operators, or register one with "
            "torch.library.register_fake."
        )
    if isinstance(error, TypeError) and "argument" in message and "numpy" not in message:
        return (
            "Check that example_inputs are what the model's forward takes, in order, or pass a dict of keyword inputs; "
            "targets of a loss come last."
        )
    if isinstance(error, MemoryError):
        return _OUT_OF_MEMORY
    for words, remedy in _BY_MESSAGE:
        if any(word.lower() in message.lower() for word in words):
            return remedy
    return "Run the model once on these inputs outside capture; if that works, simplify the named line."
