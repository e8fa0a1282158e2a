"""The paper's models in plain torch.nn, by name: GPT, GShard-MoE, Wide-ResNet, and tiny ones for tests.

Importing this package takes no torch; `build` does.
"""

from alpa_explore.models.catalog import CatalogEntry, build, entry, microbatch_size, names
from alpa_explore.models.configs import GPTConfig, MLPConfig, ModelConfig, MoEConfig, WideResNetConfig

__all__ = [
    "CatalogEntry",
    "GPTConfig",
    "MLPConfig",
    "MoEConfig",
    "ModelConfig",
    "WideResNetConfig",
    "build",
    "entry",
    "microbatch_size",
    "names",
]
