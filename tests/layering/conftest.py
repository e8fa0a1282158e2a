"""Hand-made graphs and random instances for the layering tests."""

import random
from collections.abc import Callable, Sequence

import pytest

from alpa_explore.graph import Operator, Parameter, Phase, Ref, Tensor, TensorKind, TrainingGraph, verify
from alpa_explore.layering import Crossing

Step = tuple[str, int, int, tuple[int, ...]]
"""(module, flops, float32 elements of its output, positions of the steps it reads; −1 is the example input)."""


@pytest.fixture
def make_graph() -> Callable[[Sequence[Step]], TrainingGraph]:
    """Steps -> a verified training graph: each step also reads one shared weight, and has a backward operator."""

    def build(steps: Sequence[Step]) -> TrainingGraph:
        tensors = [
            Tensor(index=0, name="input", shape=(4,), dtype="float32", kind=TensorKind.INPUT, producer=None),
            Tensor(index=1, name="weight", shape=(999,), dtype="float32", kind=TensorKind.PARAMETER, producer=None),
        ]
        operators: list[Operator] = []

        def operator(name: str, phase: Phase, inputs: tuple[int, ...], elements: int, **fields: object) -> int:
            kind = TensorKind.GRADIENT if name == "gradient" else TensorKind.VALUE
            out = len(tensors)
            tensors.append(
                Tensor(index=out, name=name, shape=(elements,), dtype="float32", kind=kind, producer=len(operators))
            )
            operators.append(
                Operator(
                    index=len(operators),
                    name=name,
                    kind="aten.any",
                    phase=phase,
                    inputs=inputs,
                    outputs=(out,),
                    arguments=tuple(Ref(t) for t in inputs),
                    **fields,  # type: ignore[arg-type]
                )
            )
            return out

        made: list[int] = []
        for number, (module, flops, elements, reads) in enumerate(steps):
            inputs = (*(0 if r < 0 else made[r] for r in reads), 1)
            made.append(operator(f"op{number}", Phase.FORWARD, inputs, elements, flops=flops, module=module))
        # Every backward operator reads its forward operator's output: those readers must not count as crossing.
        gradient = made[-1]
        for number in reversed(range(len(steps))):
            last = number == 0
            gradient = operator(
                "gradient" if last else f"back{number}",
                Phase.BACKWARD,
                (gradient, made[number]),
                999 if last else 1,
                forward=number,
                flops=steps[number][1] * 2,
            )
        update = len(operators)
        operator("update", Phase.UPDATE, (1, gradient), 999)
        parameter = Parameter(name="weight", tensor=1, gradient=gradient, update=update, state_bytes_per_element=8)
        return verify(
            TrainingGraph(
                name="hand-made",
                tensors=tuple(tensors),
                operators=tuple(operators),
                inputs=(0,),
                parameters=(parameter,),
                loss=made[-1],
                samples=4,
                tokens=4,
                precision="float32",
                optimizer="adam",
                rematerialization=True,
            )
        )

    return build


@pytest.fixture
def random_instance() -> Callable[[random.Random, int, int], tuple[list[int], list[Crossing]]]:
    """(rng, K, scale) -> FLOPs and crossing tensors; many zeros and ties, several outputs, near and far readers."""

    def draw(rng: random.Random, operators: int, scale: int) -> tuple[list[int], list[Crossing]]:
        flops = [0 if rng.random() < 0.4 else rng.randrange(1, scale + 1) for _ in range(operators)]
        crossings = []
        for producer in range(operators - 1):
            for _ in range(rng.choice((0, 1, 1, 1, 2))):
                later = range(producer + 1, operators)
                near = later[: rng.choice((1, 2, 3, len(later)))]
                readers = sorted(rng.sample(near, rng.randint(1, min(3, len(near)))))
                size = 0 if rng.random() < 0.1 else rng.randrange(1, scale + 1)
                crossings.append(Crossing(producer=producer, readers=tuple(readers), bytes=size))
        return flops, crossings

    return draw
