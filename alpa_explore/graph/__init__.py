"""The training graph: one training step of one microbatch as frozen values.

Everything after the tracer works on this graph and never on torch objects. In the order to read them:

    tensor      a tensor: name, shape, dtype, kind (input, parameter, value, gradient, …), producer
    operator    an operator: kind, phase (forward, backward, update), arguments, FLOPs, bytes
    graph       TrainingGraph: all tensors and operators of the step, and its parameters; the invariants
                of every graph
    counts      FLOPs and bytes of an operator from shapes alone
    blocks      the numbered blocks of a model, and what of a block is exchanged at once
    linear_layers   which products are linear layers of blocks, heads, routers
    low_precision   marks the operators that software computes in a lower precision
    written     what the forward pass writes, and which of it losses depend on
    spelled_out attention in products and a softmax, routed experts as a sort and grouped products: what that costs
    loops       loops over positions: the body of a scan, and loops of Python of which every turn is captured
    document    a graph as plain lists, for plan files and the cache

It imports `errors` and `units` only; never torch.

Concepts that others use: Argument, AttentionOptions, FusedKernel, Joined, LinearLayer, LoopBody, Operator, Parameter,
Phase, Ref, Symbol, Tensor, TensorKind, TrainingGraph, Unfused, Written.
"""

from alpa_explore.graph.graph import Parameter, TrainingGraph, Written, verify
from alpa_explore.graph.operator import Argument, Operator, Phase, Ref, Symbol, Unfused, leaves, mapped, tensor_refs
from alpa_explore.graph.tensor import GIVEN_KINDS, PRECISIONS, Tensor, TensorKind, full_precision

__all__ = [
    "GIVEN_KINDS",
    "PRECISIONS",
    "Argument",
    "Operator",
    "Parameter",
    "Phase",
    "Ref",
    "Symbol",
    "Tensor",
    "TensorKind",
    "TrainingGraph",
    "Unfused",
    "Written",
    "full_precision",
    "leaves",
    "mapped",
    "tensor_refs",
    "verify",
]
