"""The training graph as frozen values: tensors, operators, phases."""

from alpa_explore.graph.graph import Parameter, TrainingGraph
from alpa_explore.graph.operator import Argument, Operator, Phase, Ref, Symbol, tensor_refs
from alpa_explore.graph.tensor import PRECISIONS, Tensor, TensorKind
from alpa_explore.graph.verify import verify

__all__ = [
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
    "tensor_refs",
    "verify",
]
