"""What several tests of runs compare with."""

import pytest
import torch

from alpa_explore.programs.lowering.lower import lower
from alpa_explore.runtime.launch import launch
from tests.runtime.plans import small_plan
from tests.runtime.states import ended
from tests.runtime.trained import Trained, mlp_plan, written


@pytest.fixture(scope="session")
def losses(tmp_path_factory):
    """Of two steps of `small_plan` by the local target: what others must give, too, on whatever machines."""
    run = launch(small_plan(), steps=2, folder=tmp_path_factory.mktemp("local"), device="cpu")
    return [step.loss for step in ended(run).steps]


@pytest.fixture(scope="module")
def mlp():
    return lower(mlp_plan())


@pytest.fixture(scope="module")
def trained(mlp):
    generator = torch.Generator().manual_seed(0)
    held = {p.tensor: mlp.graph.tensors[p.tensor].shape for p in mlp.graph.parameters}
    return Trained(mlp.graph, {t: torch.randn(shape, generator=generator) for t, shape in held.items()})


@pytest.fixture
def run(tmp_path, mlp, trained):
    """The folder of a run with checkpoints of step 2 and 3."""
    more = {"samples_per_iteration": 64, "stream_samples": 32}
    written(tmp_path / "run", mlp, trained.ranks(mlp), steps=(1, 2, 3), **more)
    return tmp_path / "run"
