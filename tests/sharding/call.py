"""An example of an operator, as the tables of `examples/` hold it."""

from dataclasses import replace

import torch

from alpa_explore.graph import Operator, Phase, Ref, Tensor, TensorKind
from alpa_explore.tracing.symbols import to_symbol
from tests.sharding.executor import run

_generator = torch.Generator().manual_seed(0)


def real(*shape, dtype=torch.float64):
    """Normal numbers."""
    return torch.randn(shape, generator=_generator, dtype=torch.float64).to(dtype)


def positive(*shape, dtype=torch.float64):
    """Numbers in 0.1 … 0.9, where every function is defined and smooth."""
    return (torch.rand(shape, generator=_generator, dtype=torch.float64) * 0.8 + 0.1).to(dtype)


def integers(high, *shape):
    """Indices below `high`."""
    return torch.randint(high, shape, generator=_generator)


def mask(*shape):
    """True or false."""
    return torch.randint(2, shape, generator=_generator).bool()


class Call:
    """One call: its kind, its arguments (with real tensors), and the factors that its rule must return."""

    def __init__(self, kind, *arguments, factors, **keywords):
        self.kind, self.factors = kind, factors.split()
        self._arguments, self._keywords = arguments, keywords

    def __str__(self):
        return self.kind.removeprefix("aten.") + ":" + ",".join(self.factors)

    def build(self):
        """(operator, tensors, values by tensor index): the operator has been run, whole."""
        arguments = []

        def frozen(argument):
            if isinstance(argument, torch.Tensor):
                place = next((i for i, t in enumerate(arguments) if t is argument), None)
                if place is None:
                    place = len(arguments)
                    arguments.append(argument)
                read.append(place)
                return Ref(place)
            if isinstance(argument, list | tuple):
                return tuple(frozen(a) for a in argument)
            return to_symbol(argument) or argument

        read = []
        operator = Operator(
            index=0,
            name="example",
            kind=self.kind,
            phase=Phase.FORWARD,
            inputs=(),
            outputs=(),
            arguments=tuple(frozen(a) for a in self._arguments),
            keywords=tuple((name, frozen(a)) for name, a in self._keywords.items()),
        )
        values = dict(enumerate(arguments))
        torch.manual_seed(0)
        made = run(replace(operator, inputs=tuple(read)), values)
        values.update(enumerate(made, len(arguments)))
        tensors = tuple(
            Tensor(
                index=i,
                name=f"t{i}",
                shape=tuple(t.shape),
                dtype=str(t.dtype).removeprefix("torch."),
                kind=TensorKind.VALUE,
                producer=None,
            )
            for i, t in values.items()
        )
        outputs = tuple(range(len(arguments), len(values)))
        return replace(operator, inputs=tuple(read), outputs=outputs), tensors, values
