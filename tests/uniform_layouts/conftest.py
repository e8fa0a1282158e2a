"""The layouts of small models, priced once in a run: other workers and tiers read them from its cache."""

from __future__ import annotations

import pytest

import alpa_explore as ax
from alpa_explore.uniform_layouts.ranking import Layouts


@pytest.fixture(scope="session")
def llama_layouts() -> Layouts:
    """llama-tiny on eight H100, a batch of 16."""
    return ax.layouts("llama-tiny", "1x8:h100", global_batch=16, scheduler="serial")


@pytest.fixture(scope="session")
def moe_layouts() -> Layouts:
    """qwen3-moe-tiny on two nodes of four."""
    return ax.layouts("qwen3-moe-tiny", "2x4:h100", global_batch=16, scheduler="serial")
