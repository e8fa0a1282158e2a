"""A plan from a file, rebuilt from its recipe, is the plan that was made: the same choices, the same program."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.errors import PlanFileError, RecipeError
from alpa_explore.intra_op.stage.recomputation import Recomputation
from alpa_explore.models.catalog import build
from alpa_explore.plans.rebuild import capture_again, rebuild
from alpa_explore.programs.lowering.lower import lower


@pytest.fixture(scope="module")
def plan():
    return ax.plan("mlp-tiny", "1x4:v100", num_microbatches=4, num_layers=3, delta=1.0, precision="float32")


@pytest.fixture
def read(plan, tmp_path):
    plan.save(tmp_path / "mlp.plan.json")
    return ax.load_plan(tmp_path / "mlp.plan.json")


def tasks(plan):
    return [stage.tasks for stage in lower(plan).stages]


def changed(plan, part, place, **fields):
    """`plan` with other fields of one operator or tensor of its first stage."""
    stage = plan.stages[0]
    own = list(getattr(stage, part))
    own[place] = replace(own[place], **fields)
    return replace(plan, stages=(replace(stage, **{part: tuple(own)}), *plan.stages[1:]))


@pytest.mark.parametrize("kind", ["inter-only", "zero-3", "megatron"])
def test_a_plan_from_a_file_is_lowered_to_the_same_program(kind, tmp_path) -> None:
    degrees = {"tp": 2, "dp": 1, "pp": 2} if kind == "megatron" else {}
    plan = ax.baseline(
        "mlp-tiny", "1x4:v100", kind, num_microbatches=4, num_layers=4, delta=1.0, precision="float32", **degrees
    )
    plan.save(tmp_path / "mlp.plan.json")
    read = ax.load_plan(tmp_path / "mlp.plan.json")
    assert read.details is None
    assert tasks(read) == tasks(plan)


def test_what_is_captured_again_is_what_was_planned() -> None:
    graph = ax.capture(
        *build("mlp-tiny", 4),
        name="mine",
        recipe="mlp-tiny",
        optimizer="sgd",
        precision="bfloat16",
        rematerialization=False,
    )
    again = capture_again(ax.plan(graph, "1x1:v100", num_microbatches=2, num_layers=1).model)
    assert again == graph
    assert (again.name, again.recipe) == (graph.name, graph.recipe)


def test_a_rebuilt_plan_answers_what_if_questions(plan, read) -> None:
    again = rebuild(read)
    for stage in plan.stages:
        assert again.details.choices[stage.solution_key] == plan.details.choices[stage.solution_key]
    name = plan.stages[0].operators[0].name
    assert ax.regrets(again, 0, name) == ax.regrets(plan, 0, name)


def test_a_file_that_does_not_belong_to_its_model_is_refused_with_the_first_disagreement(read) -> None:
    layer = read.layers[0]
    other_model = replace(read, model=replace(read.model, samples=2 * read.model.samples))
    renamed = replace(read, layers=(replace(layer, operators=("x", *layer.operators[1:])), *read.layers[1:]))
    for wrong, found in (
        (other_model, "FLOPs"),
        (renamed, "layer 0 has x"),
        (changed(read, "operators", 0, name="nobody"), "is not in the file"),
        (changed(read, "operators", 0, inputs=("S9", "S9")), "has no strategy"),
        (changed(read, "tensors", 0, spec="S9R"), "cannot be S9R"),
        (changed(read, "tensors", 0, name="nobody"), "is not in the file"),
    ):
        with pytest.raises(PlanFileError, match=found):
            rebuild(wrong)


def test_strategies_that_do_not_go_together_are_refused(tmp_path) -> None:
    plan = ax.baseline("mlp-tiny", "1x4:v100", "zero-3", num_microbatches=1, num_layers=2, delta=1.0)
    operators = list(plan.stages[0].operators)
    relu = next(i for i, o in enumerate(operators) if "relu" in o.op and o.phase == "forward")
    pending = replace(operators[relu], inputs=("RR+P01",), outputs=("RR+P01",), output="RR+P01")
    plan.save(tmp_path / "a.plan.json")
    with pytest.raises(PlanFileError, match="has no strategy"):
        rebuild(
            changed(
                ax.load_plan(tmp_path / "a.plan.json"),
                "operators",
                relu,
                **{"inputs": pending.inputs, "outputs": pending.outputs, "output": pending.output},
            )
        )


def test_a_model_made_in_a_notebook_is_asked_for(read) -> None:
    unknown = replace(read, model=replace(read.model, recipe=None))
    with pytest.raises(RecipeError, match="made in a notebook"):
        lower(unknown)


@pytest.mark.slow
def test_an_import_path_is_followed_only_where_that_is_allowed(plan, read, tmp_path, monkeypatch) -> None:
    source = f"""
from alpa_explore.models.catalog import build

def model():
    return build("mlp-tiny", {plan.model.samples})
"""
    (tmp_path / "their_package.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    theirs = replace(read, model=replace(read.model, recipe="their_package:model"))
    with pytest.raises(RecipeError, match="--allow-import"):
        rebuild(theirs)
    allowed = rebuild(theirs, allow_import=True)
    assert tasks(allowed) == tasks(plan)
    for recipe, found in (("their_package:nothing", "AttributeError"), ("../x", "not a model of the catalogue")):
        with pytest.raises(RecipeError, match=found):
            rebuild(replace(read, model=replace(read.model, recipe=recipe)), allow_import=True)


def test_stages_that_recompute_some_blocks_are_rebuilt_so(tmp_path) -> None:
    plan = ax.plan("mlp-tiny", "1x2:v100", num_microbatches=2, num_layers=4, delta=1.0, rematerialization="auto")
    versions = [next(c for f in plan.costs.candidates.values() for c in f if c.version == v) for v in (0, 1, 2)]
    assert [plan.costs.versions[c.version] for c in versions] == [
        Recomputation(),
        Recomputation("half"),
        Recomputation("full"),
    ]
    whole = next(c for c in plan.costs.candidates[0, 3, 1] if c.version == 1)
    stage = replace(
        plan.stages[0],
        layers=(0, 3),
        submesh=(1, 2),
        logical_mesh=whole.logical_mesh.shape,
        devices=(0, 1),
        solution_key=whole.solution_key,
        operators=plan.details.operators((0, 3), whole),
        tensors=plan.details.tensors((0, 3), whole),
        recomputation="half",
    )
    half = replace(plan, stages=(stage,))
    half.save(tmp_path / "half.plan.json")
    assert tasks(ax.load_plan(tmp_path / "half.plan.json")) == tasks(half) != tasks(plan)
