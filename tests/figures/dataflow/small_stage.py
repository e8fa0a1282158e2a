"""A stage that is made by hand: an embedding, equal blocks of a few operators, and a head, with their gradients."""

from dataclasses import replace
from typing import Any

from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOperator, PlanStage, PlanTensor
from tests.plans.example import example_plan, without_describe


def operator(name: str, reads: tuple[str, ...], **fields: Any) -> PlanOperator:
    """An operator on a mesh of 2 × 2 devices that takes a millisecond and moves nothing."""
    specs = tuple("S0R" for _ in reads)
    given: dict[str, Any] = {
        "op": f"aten.{name.split('_')[0]}.default",
        "phase": "forward",
        "module": "",
        "layer": 0,
        "strategy": "m",
        "inputs": specs,
        "output": "S0R",
        "outputs": ("S0R",),
        "compute_seconds": 1e-3,
        "communication_seconds": 0.0,
        "communication": (),
        "flops": 10,
        "output_shape": (8, 4),
        "input_names": reads,
        "input_shapes": tuple((8, 4) for _ in reads),
    }
    return PlanOperator(name=name, **(given | fields))


def moving(tensor: str, kinds: str = "all-gather", seconds: float = 2e-4) -> dict[str, Any]:
    """The fields of an operator for which a tensor is moved."""
    return {
        "communication_seconds": seconds,
        "communication": (f"{tensor}: S0R → RR, {kinds} over axis 0 (1 KiB, {1e6 * seconds:.0f} µs)",),
        "collective_tensors": (tensor,),
        "collective_kinds": (kinds,),
        "collective_seconds": (seconds,),
    }


def view(name: str, reads: str, **fields: Any) -> PlanOperator:
    return operator(name, (reads,), compute_seconds=0.0, **fields)


def block_operators(number: int, before: str, gradient: str) -> tuple[list[PlanOperator], list[PlanOperator]]:
    """Forward, and backward with the updates: norm → (view) → mm of a gathered weight → add with what came in."""
    i, name = number, f"h.{number}"
    ahead = [
        operator(f"norm_{i}", (before,), module=f"{name}.norm"),
        view(f"view_{i}", f"norm_{i}", module=f"{name}.mlp"),
        operator(f"mm_{i}", (f"view_{i}", f"{name}.mlp.weight"), module=f"{name}.mlp", **moving(f"{name}.mlp.weight")),
        operator(f"add_{i}", (before, f"mm_{i}"), module=name),
    ]
    back = [
        operator(f"dx_{i}", (gradient, f"{name}.mlp.weight"), phase="backward", module=f"{name}.mlp"),
        operator(f"dw_{i}", (gradient, f"view_{i}"), phase="backward", module=f"{name}.mlp", output="RR+P0"),
        operator(f"dnorm_{i}", (f"dx_{i}", before), phase="backward", module=f"{name}.norm"),
        operator(
            f"update_{name}.mlp.weight",
            (f"{name}.mlp.weight", f"dw_{i}"),
            phase="update",
            module=f"{name}.mlp",
            **moving(f"dw_{i}", "reduce-scatter", 1e-4),
        ),
    ]
    return ahead, back


def small_stage(blocks: int = 3) -> PlanStage:
    forward = [operator("embedding", ("embedding.weight", "tokens"), module="embedding")]
    backward: list[PlanOperator] = []
    before, ahead, behind = "embedding", [], []
    for i in range(blocks):
        gradient = f"dnorm_{i + 1}" if i + 1 < blocks else "loss_backward"
        there, back = block_operators(i, before, gradient)
        ahead += there
        behind.insert(0, back)
        before = f"add_{i}"
    forward += [*ahead, operator("loss", (before,), module="head", **moving(before, "all-reduce", 5e-4))]
    backward.append(operator("loss_backward", ("loss",), phase="backward", module="head"))
    backward += [o for back in behind for o in back if o.phase == "backward"]
    updates = [o for back in behind for o in back if o.phase == "update"]
    weights = ["embedding.weight", *(f"h.{i}.mlp.weight" for i in range(blocks))]
    return replace(
        without_describe(example_plan()).stages[0],
        logical_mesh=(2, 2),
        operators=(*forward, *backward, *updates),
        tensors=(
            PlanTensor(name="tokens", role="source", spec="RR"),
            *(PlanTensor(name=name, role="weight", spec="S0R") for name in weights),
        ),
    )


def plan_of(stage: PlanStage) -> Plan:
    plan = without_describe(example_plan())
    return replace(plan, stages=(stage, *plan.stages[1:]))
