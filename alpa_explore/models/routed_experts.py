"""Routed experts: every token is multiplied with the matrices of the few experts that its router chose.

    hidden = x · up (+ bias)      inner = activation(hidden)      y = Σ over chosen experts of weight · (inner · down)

T tokens of width M, k chosen of E experts of inner width F. No token is dropped. A model calls `routed_experts`; while
it is captured, the call is one operator (`tracing.experts`), and what is written here is its plain definition.

`layout` says how gate and up projection are held:
    plain          (up, down): no gate, inner = a(up)
    separate       (gate, up, down), inner = a(gate) · up
    concatenated   (gate and up one after the other, down)
    interleaved    (gate and up column by column, down)
Only with concatenated matrices the inner width cannot be divided over devices. `inputs_first`: matrices are [E, in,
out], else [E, out, in] as in `nn.Linear`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

LAYOUTS = ("plain", "separate", "concatenated", "interleaved")
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
}


class Gate(NamedTuple):
    """How the inner activations follow from the products with the up projection."""

    activation: str = "silu"
    layout: str = "separate"
    limit: float = 0.0
    """Gates are cut at it, ups at ± it; 0: they are not cut."""
    alpha: float = 1.0
    """a(x) is activation(alpha · x) / alpha. GPT-OSS: 1.702 with silu."""
    shift: float = 0.0
    """Added to the ups. GPT-OSS: 1."""

    def parts(self, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """(gate, up) of [..., 2 F], or ([..., F], None) of the plain layout. `hidden` of separate matrices is theirs
        one after the other."""
        if self.layout == "plain":
            return hidden, None
        if self.layout == "interleaved":
            return hidden[..., ::2], hidden[..., 1::2]
        gate, up = hidden.chunk(2, dim=-1)
        return gate, up

    def inner(self, hidden: Tensor) -> Tensor:
        """[..., F] of `hidden`."""
        gate, up = self.parts(hidden)
        if self.limit:
            gate = gate.clamp(max=self.limit)
        made = ACTIVATIONS[self.activation](gate * self.alpha) / self.alpha
        if up is None:
            return made
        return made * ((up.clamp(-self.limit, self.limit) if self.limit else up) + self.shift)


def routed_experts(
    tokens: Tensor,
    chosen: Tensor,
    weights: Tensor,
    matrices: Sequence[Tensor],
    biases: Sequence[Tensor] = (),
    *,
    gate: Gate = Gate(),  # noqa: B008  # a frozen value
    inputs_first: bool = True,
) -> Tensor:
    """tokens [T, M], chosen experts [T, k] (integers), their weights [T, k] -> [T, M] in the dtype of the tokens.

    `matrices` as the gate's layout says, gate and up [E, M, F], down [E, F, M]; `biases` none, or one [E, out] for
    each matrix.
    """
    return _computed(tokens, chosen, weights, matrices, biases, gate, inputs_first)


def _computed(
    tokens: Tensor,
    chosen: Tensor,
    weights: Tensor,
    matrices: Sequence[Tensor],
    biases: Sequence[Tensor],
    gate: Gate,
    inputs_first: bool,
) -> Tensor:
    """`routed_experts`, expert by expert; replaced while a model is captured."""
    *ups, down = matrices if inputs_first else [m.transpose(1, 2) for m in matrices]
    *up_biases, down_bias = biases or (None,) * len(matrices)
    combined = torch.zeros(tokens.shape, dtype=torch.promote_types(tokens.dtype, torch.float32), device=tokens.device)
    for expert in range(down.shape[0]):
        token, slot = torch.where(chosen == expert)
        rows = tokens[token]
        products = [rows @ up[expert] for up in ups]
        hidden = torch.cat([p if b is None else p + b[expert] for p, b in zip(products, up_biases, strict=True)], -1)
        made = gate.inner(hidden) @ down[expert]
        if down_bias is not None:
            made = made + down_bias[expert]
        combined = combined.index_add(0, token, made.to(combined.dtype) * weights[token, slot, None])
    return combined.to(tokens.dtype)
