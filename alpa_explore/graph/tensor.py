"""A tensor of the training graph: a name, a shape, a dtype, and its producer."""

import enum
import math
from dataclasses import dataclass

from alpa_explore.arguments import plain_name
from alpa_explore.units import DTYPE_BYTES

PRECISIONS = ("float16", "bfloat16", "float32")
"""The dtypes in which a model can be captured."""
_SHORT_PRECISIONS = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32"}


def full_precision(name: str) -> str:
    """The dtype that a name stands for, in any case, or torch's own: BF16 and torch.bfloat16 -> bfloat16; any other
    name as it is."""
    plain = str(plain_name(name))
    return _SHORT_PRECISIONS.get(plain, plain)


class TensorKind(enum.Enum):
    """The role of a tensor in the training step."""

    INPUT = "input"
    """An example input: one microbatch of data."""
    PARAMETER = "parameter"
    """A trainable weight, in the precision in which it is read."""
    FROZEN = "frozen weight"
    """A weight that is not trained, in the precision in which it is read."""
    BUFFER = "buffer"
    """State that is read but not trained (running statistics, masks)."""
    CONSTANT = "constant"
    """A tensor written out in the model's code."""
    VALUE = "value"
    """Any other result of an operator, forward or backward."""
    ROUTED = "routed rows"
    """A value that routed experts keep for their backward pass: every device has rows of its own, as many as were
    routed to it. The shape is that of an even load. It cannot be resharded."""
    RETURNED = "returned value"
    """A value that the model returns beside its loss, such as logits: a loop in plain PyTorch holds it until the
    backward pass has run."""
    GRADIENT = "gradient"
    """The gradient of a parameter, before the update reads it."""
    UPDATED = "updated parameter"
    """The new value of a parameter, written by the update."""


GIVEN_KINDS = (TensorKind.FROZEN, TensorKind.BUFFER, TensorKind.CONSTANT)
"""Kinds of tensors that a device keeps from step to step, as weights, but does not train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: `index` is its place in `TrainingGraph.tensors`, `producer` the operator that makes it."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: TensorKind
    producer: int | None

    @property
    def elements(self) -> int:
        """Number of elements (1 for a scalar)."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes of the whole, unsharded tensor."""
        return self.elements * DTYPE_BYTES[self.dtype]
