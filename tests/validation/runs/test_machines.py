"""Devices and software by the names of the sources."""

import pytest

from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, ClusterError, UnknownNameError
from alpa_explore.validation.runs.architecture import kind_of, padded_vocabulary
from alpa_explore.validation.runs.machines import check_overrides, device_name, machine, software_name
from alpa_explore.validation.runs.nearest import Near, recomputed


@pytest.mark.parametrize(
    ("gpu_type", "preset"),
    [
        *(("H100-80GB", "h100"), ("H100", "h100"), ("A100-80GB", "a100-80gb"), ("A100-40GB", "a100-40gb")),
        *(("H200-141GB", "h200"), ("B200", "b200"), ("B300", "b300"), ("GB200", "gb200"), ("NVIDIA GB300", "gb300")),
    ],
)
def test_devices_of_the_measured_files_are_known(gpu_type: str, preset: str) -> None:
    assert device_name(gpu_type) == Near(preset, "")


@pytest.mark.parametrize(
    ("framework", "profile"),
    [
        *(("nanotron", "nanotron"), ("Megatron-DeepSpeed", "megatron-deepspeed"), ("NeMo 24.07", "megatron")),
        *(("NeMo / Megatron-Core", "megatron"), ("Megatron-Bridge/NeMo (Megatron-Core)", "megatron")),
        *(("llm-foundry (Composer FSDP)", "fsdp"), ("MaxText (JAX)", "maxtext"), ("Paxml (JAX)", "maxtext")),
        *(("Primus (Megatron)", "megatron"), ("torchtitan", "torchtitan"), ("DeepSpeed", "deepspeed")),
        *(("Megatron-LM (SC21)", "megatron-v2"), ("NeMo Megatron", "megatron-v2"), ("megatron", "megatron")),
        ("NeMo Automodel (FSDP2, TE, DeepEP)", "torchtitan-eager"),
    ],
)
def test_frameworks_of_the_measured_files_are_known(framework: str, profile: str) -> None:
    assert software_name(framework)[:2] == (profile, "")


@pytest.mark.parametrize(
    ("note", "profile"),
    [
        ("container 25.11 NeMo Container; Pre-Training Performance", "megatron-2025"),
        ("DGXC release 25.05; LLAMA4 maverick 400b BF16", "megatron-2025"),
        ("container 26.04.01 NeMo Container", "megatron-2025"),
        ("container 26.06 NeMo Container", "megatron"),
        ("rank 0 allocated; HybridEP, EP overlap", "megatron-hybridep"),
        ("with EP overlap", "megatron-hybridep"),
        ("", "megatron"),
    ],
)
def test_a_release_that_the_note_names_has_its_own_profile(note: str, profile: str) -> None:
    assert software_name("Megatron-Bridge/NeMo (Megatron-Core)", note).name == profile
    assert software_name("nanotron", note).name == "nanotron"


def test_a_run_without_overlap_of_its_experts_waits_for_all_that_they_exchange() -> None:
    shares = [machine("H100", "megatron", 16, 8, note=f"{word} EP overlap").cluster for word in ("with", "without")]
    assert [cluster.software.expert_overlap for cluster in shares] == [0.8, 0.0]


def test_torchtitan_without_compilation_has_its_own_profile() -> None:
    assert software_name("torchtitan FSDP2", "eager; peak reserved, of 95 GiB").name == "torchtitan-eager"
    assert software_name("torchtitan FSDP2, compiled", "middle of the range").name == "torchtitan"


@pytest.mark.parametrize(
    ("gpu_type", "preset", "memory", "share"),
    [
        ("A800-80GB", "a100-80gb", None, 2 / 3),
        ("A800-SXM4-40GB", "a100-40gb", None, 2 / 3),
        ("H100-96GB-HBM2e-500W", "h100", 96, 1.0),
        ("h100_2nd", "h100", None, 1.0),
        ("GH200", "h100", None, 1.0),
        ("GH200-480GB", "h100", None, 1.0),
        ("GH200 144GB", "h200", None, 1.0),
        ("Tesla V100-SXM2-32GB", "v100", 32, 1.0),
        ("A100-PCIE-40GB", "a100-40gb", None, 1.0),
        ("MI300A", "mi300x", None, 1.0),
    ],
)
def test_a_device_near_a_known_one_is_priced_as_that_with_a_note(gpu_type, preset, memory, share) -> None:
    on = machine(gpu_type, "megatron", 16, 8)
    known = machine(preset, "megatron", 16, 8)
    assert (on.cluster.device.name, known.notes) == (preset, ())
    (note,) = on.notes
    assert note.startswith(f"{gpu_type} is priced as {preset}, the nearest device that is known")
    assert on.cluster.device.memory_bytes == (memory * 10**9 if memory else known.cluster.device.memory_bytes)
    assert on.cluster.inside_node.bandwidth == pytest.approx(share * known.cluster.inside_node.bandwidth)


@pytest.mark.parametrize("gpu_type", ["NVIDIA H100 80GB HBM3", "H100-SXM5-80GB", "DGX B200", "NVIDIA A100-SXM4-40GB"])
def test_longer_names_of_a_known_device_need_no_note(gpu_type: str) -> None:
    assert device_name(gpu_type).note == ""


@pytest.mark.parametrize(
    ("framework", "profile"),
    [("InternEvo (hybrid ZeRO)", "deepspeed"), ("Hugging Face Trainer", "fsdp"), ("GPT-NeoX", "megatron-deepspeed")],
)
def test_software_near_a_known_one_is_priced_as_that_with_a_note(framework: str, profile: str) -> None:
    on = machine("H100", framework, 8, 8)
    assert (on.cluster.software.name, on.notes) == (
        profile,
        (f"{framework} is priced as {profile}, the nearest software that is known",),
    )


@pytest.mark.parametrize(
    ("words", "priced", "noted"),
    [
        ("none", ("none",), False),
        ("False", ("none",), False),
        ("Full (uniform)", ("full",), False),
        ("gradient checkpointing", ("full",), False),
        ("core_attn", ("selective",), False),
        ("selective: core_attn", ("selective",), False),
        ("selective activation recomputation", ("selective",), False),
        ("not stated", ("none", "full"), True),
        ("selective-op", ("none", "full"), True),
        ("selective: moe_act", ("none", "full"), True),
        ("selective: core_attn, mlp", ("selective", "full"), True),
        ("full, block 5", ("none", "full"), True),
    ],
)
def test_recomputation_is_what_the_words_say_or_lies_between_two_ends(words, priced, noted) -> None:
    assert recomputed(words)[0] == priced
    assert bool(recomputed(words)[1]) == noted


def test_unknown_names_are_errors_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Unknown device"):
        check_overrides("h1000000", None)
    with pytest.raises(AlpaExploreError):
        check_overrides("no-such-file.json", None)
    check_overrides("h100", "megatron")


def test_a_run_is_on_whole_nodes_and_uses_64_devices_of_a_rack() -> None:
    assert str(machine("H100-80GB", "nanotron", 64, 8).cluster) == "8x8:h100@nanotron"
    assert str(machine("H100-80GB", "nanotron", 4, 8).cluster) == "1x4:h100@nanotron"
    assert str(machine("A100-80GB", "Megatron-DeepSpeed", 360, 8).cluster) == "45x8:a100-80gb@megatron-deepspeed"
    racks = [str(machine("GB200", "NeMo", n, per_node).cluster) for n, per_node in ((8, 72), (64, 72), (256, 4))]
    assert racks == ["1x8:gb200", "1x64:gb200", "4x64:gb200"]


def test_a_run_need_not_fill_its_last_node() -> None:
    assert str(machine("H100", "nanotron", 12, 8).cluster) == "2x8:h100@nanotron"
    assert str(machine("H100", "nanotron", 6, 8).cluster) == "1x8:h100@nanotron"
    assert str(machine("GB300", "NeMo", 144, 72).cluster) == "2x72:gb300"
    assert str(machine("V100", "eager", 24, 6).cluster) == "4x6:v100@eager"


@pytest.mark.parametrize("device", ["a100-40gb", "b200", "cpu", "gb200", "h100", "l40s", "v100"])
@pytest.mark.parametrize("per_node", [1, 4, 8])
def test_a_run_has_the_network_of_the_cluster_that_plans_name(device: str, per_node: int) -> None:
    node = 64 if device == "gb200" else per_node  # runs on a rack use 64 of it
    run = machine(device, "megatron", 4 * node, per_node, device=device).cluster
    assert run.between_nodes == Cluster.parse(f"4x{node}:{device}").between_nodes


def test_a_cluster_has_an_upper_size() -> None:
    with pytest.raises(ClusterError, match="too large"):
        machine("H100", "nanotron", 2**15, 8)


def test_overrides_win_over_the_rows_names() -> None:
    made = machine("MI300X", "ColossalAI", 8, 8, device="h200", software="torchtitan")
    assert (made.cluster.device.name, made.cluster.software.name) == ("h200", "torchtitan")


def test_the_kind_of_a_model_follows_from_its_name_and_else_from_its_mlp() -> None:
    kinds = [kind_of(name, 4096, None) for name in ("LLAMA3-8B", "mpt-7b", "GPT3-5B", "Nemotron-15B", "bloom-like-18B")]
    assert kinds == ["llama", "gpt", "gpt", "nemotron", "gpt"]
    assert (kind_of("mine", 4096, 16384), kind_of("mine", 4096, 11008)) == ("gpt", "llama")


def test_vocabularies_are_padded_as_frameworks_do() -> None:
    assert padded_vocabulary(50257, 2, "megatron-deepspeed") == 50432
    assert padded_vocabulary(128256, 1, "megatron") == 128256
    assert padded_vocabulary(50257, 4, "nanotron") == 50260
    assert padded_vocabulary(131072, 8, "nanotron") == 131072


@pytest.mark.parametrize(
    ("gpu_type", "framework", "profile"),
    [
        ("H100-80GB", "PyTorch NVIDIA Release 23.09", "mlperf"),
        ("GB200", "NVIDIA NeMo Framework Release 25.09", "mlperf"),
        ("MI325X", "Primus (Megatron)", "megatron"),
    ],
)
def test_a_run_of_mlperf_on_nvidias_devices_has_nvidias_implementation(
    gpu_type: str, framework: str, profile: str
) -> None:
    of = "mlcommons/training_results_v5.1 Cisco/results/hpf_n16/llama31_8b @441d65f4"
    assert machine(gpu_type, framework, 8, 8, source=of).cluster.software.name == profile
    assert machine(gpu_type, framework, 8, 8, source=of, software="fsdp").cluster.software.name == "fsdp"


def test_a_lower_power_limit_and_slower_memory_in_a_name_lower_the_rates() -> None:
    known = machine("H100-80GB", "megatron", 8, 8).cluster.device
    on = machine("H100-96GB-HBM2e-500W", "megatron", 8, 8)
    slow = on.cluster.device
    assert slow.memory_bandwidth == 2.4e12
    assert slow.matmul_efficiency == pytest.approx(known.matmul_efficiency * (500 / 700) ** 0.75)
    assert slow.kernels.shares["float8_e4m3fn"] < known.kernels.shares["float8_e4m3fn"]
    assert slow.kernels.attention_share < known.kernels.attention_share
    assert "78% of its rate under a limit of 500 W, with memory of 2.4 TB/s" in on.notes[0]
    assert machine("H100-SXM5-700W", "megatron", 8, 8).cluster.device == known
