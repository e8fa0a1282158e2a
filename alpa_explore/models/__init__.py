"""Models in plain torch.nn, by name: the Alpa paper's (GPT, GShard-MoE, Wide-ResNet), today's, and tiny ones for tests.

Importing this package does not import torch; `build` does. In the order to read them:

    configs/      hyper-parameters of each architecture, with parameter counts in closed form
    catalog       name -> entry (config, batch size, precision, the paper's options); rows are in catalog.json
    transformer   what the decoders share: modules of GPT and the mixture of experts, rotary positions, the loss
    routed_experts   experts that a router chooses for every token: the function that models call
    gpt, moe, classifiers   GPT (the paper's, which spells attention out, and a fused one), the mixture of experts,
                            Wide-ResNet and an MLP
    decoder       Llama, Qwen3, Mixtral, DeepSeek-V3, GPT-OSS: one decoder with options
    images        the vision transformer and the diffusion transformer
    huggingface   models of the transformers package from a config.json
    factory       config -> module and example inputs
    recipe        a recipe from a plan file -> model, inputs, loss, data

It imports `errors` only, and torch.

Concepts that others use: CatalogEntry, DecoderConfig, ExpertsConfig, GPTConfig, Gate, HuggingFaceConfig, LatentConfig,
MLPConfig, MoEConfig, ModelConfig, RecipeModel, WideResNetConfig.
"""

from alpa_explore.models.catalog import CatalogEntry, build, entry, microbatch_size, names

__all__ = ["CatalogEntry", "build", "entry", "microbatch_size", "names"]
