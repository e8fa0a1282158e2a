"""The catalogue: names, entries, the number of microbatches; torch is not imported until a model is built."""

import sys

import pytest

import alpa_explore
from alpa_explore.errors import OptionError
from alpa_explore.models import entry, microbatch_size, names
from alpa_explore.models.catalog import divided_batch, divisors_of
from alpa_explore.models.configs import GPTConfig

PAPER_ROWS = (
    *("gpt-350m", "gpt-1.3b", "gpt-2.6b", "gpt-6.7b", "gpt-15b", "gpt-39b"),
    *("moe-380m", "moe-1.3b", "moe-2.4b", "moe-10b", "moe-27b", "moe-70b"),
    *("wide-resnet-250m", "wide-resnet-1b", "wide-resnet-2b", "wide-resnet-4b", "wide-resnet-6.8b", "wide-resnet-13b"),
)


TODAY = (
    *("llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3-8b", "llama-3-70b"),
    *("llama-3.1-405b", "llama-3.2-1b", "llama-3.2-3b"),
    *("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b"),
    *("mixtral-8x7b", "mixtral-8x22b", "deepseek-v3", "gpt-oss-20b", "gpt-oss-120b"),
    *("vit-b-16", "vit-l-16", "vit-h-14", "dit-xl-2"),
)
TINY = (
    *("gpt-tiny", "llama-tiny", "moe-tiny", "wide-resnet-tiny", "mlp-tiny", "qwen3-tiny", "qwen3-moe-tiny"),
    *("mixtral-tiny", "deepseek-tiny", "gpt-oss-tiny", "vit-tiny", "dit-tiny"),
)


def test_every_row_of_the_paper_todays_models_and_the_tiny_ones_are_there():
    assert names() == (*PAPER_ROWS, *TODAY, *TINY)


def test_an_entry_holds_the_options_of_the_paper():
    gpt = entry("gpt-1.3b")
    assert gpt.config == GPTConfig(hidden=2048, layers=24, heads=32, vocabulary=51200, sequence=1024)
    assert (gpt.family, gpt.global_batch, gpt.precision, gpt.rematerialization) == ("gpt", 1024, "float16", True)
    assert (gpt.num_layers, gpt.num_microbatches, gpt.gpus) == (6, 128, 4)
    assert "2201.12023" in gpt.source
    assert entry("wide-resnet-13b").precision == "float32"
    assert entry("wide-resnet-13b").num_layers == 33  # its residual blocks
    assert entry("mlp-tiny").gpus is None


def test_a_note_is_only_at_the_models_that_it_names():
    assert "40" in entry("gpt-15b").note
    assert entry("gpt-39b").note == ""


def test_the_number_of_microbatches_of_every_entry_divides_its_batch():
    for name in names():
        model = entry(name)
        assert microbatch_size(model, model.num_microbatches) * model.num_microbatches == model.global_batch


def test_the_case_of_a_name_does_not_matter():
    assert entry("GPT-1.3B") == entry("gpt-1.3b")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "from 1 to 1024"), (-4, "B = -4"), (100, "64 or 128"), (3, "2 or 4"), (1500, "nearest B that does: 1024")],
)
def test_a_number_of_microbatches_that_does_not_divide_the_batch_is_an_error(count, words):
    with pytest.raises(OptionError, match=words):
        microbatch_size(entry("gpt-1.3b"), count)


def test_names_and_entries_do_not_import_torch(monkeypatch):
    monkeypatch.setattr(alpa_explore, "models", alpa_explore.models)  # put back afterwards
    for module in [m for m in sys.modules if m.startswith("alpa_explore.models")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)  # makes `import torch` fail
    import alpa_explore.models as fresh

    counts = {name: fresh.entry(name).parameter_count for name in fresh.names()}
    assert counts["gpt-350m"] == 355_788_800
    with pytest.raises(ImportError):
        fresh.build("mlp-tiny", 1)


def test_divisors_are_complete_and_in_order() -> None:
    for batch in range(1, 400):
        assert divisors_of(batch) == tuple(d for d in range(1, batch + 1) if batch % d == 0)
    assert len(divisors_of(735_134_400)) == 1344, "of nine digits, at once"


@pytest.mark.parametrize("batch", [0, -3, 64.0, "64", True, 10**18])
def test_an_invalid_global_batch_is_an_error(batch: object) -> None:
    with pytest.raises(OptionError, match="global batch"):
        divided_batch(batch, 2, "a model")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="global batch"):
        divisors_of(batch)  # type: ignore[arg-type]
