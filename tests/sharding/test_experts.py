"""Routed experts: every division of the operator, forward and backward, against its plain definition.

The rows that the forward pass keeps lie where they were computed, so both passes are run under the same factors, and
the kept rows of a device go to the same device.
"""

import itertools

import pytest
import torch

from alpa_explore.models.routed_experts import Gate, routed_experts
from alpa_explore.sharding.local.local_call import localize
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.sharding.splits import splits_for
from tests.sharding.call import Call, real
from tests.sharding.executor import assert_equal, pieces, run_locally, whole
from tests.sharding.proof import strategies

T, M, K, E, F = 16, 8, 2, 8, 8
MESHES = ((4,), (2, 2))
GPT_OSS = Gate("silu", "interleaved", 0.7, 1.702, 1.0)


def example(gate, *, inputs_first=True, biased=False, skewed=False, experts=E):
    """(tokens, chosen, weights, matrices, biases, gate, inputs_first) in float64; no token chooses an expert twice."""
    widths = {"plain": (F,), "separate": (F, F)}.get(gate.layout, (2 * F,))
    shapes = [*((experts, M, width) for width in widths), (experts, F, M)]
    if not inputs_first:
        shapes = [(e, b, a) for e, a, b in shapes]
    biases = [real(experts, width) for width in (*widths, M)] if biased else []
    busy = 3 if skewed else experts  # the others get no row at all
    chosen = torch.stack([torch.randperm(busy, generator=torch.Generator().manual_seed(t))[:K] for t in range(T)])
    return real(T, M), chosen, real(T, K), [real(*s) for s in shapes], biases, gate, inputs_first


def calls(tokens, chosen, weights, matrices, biases, gate, inputs_first):
    """The two operators, as tables of examples hold them; the gradient of the output is random."""
    options = (
        gate.activation,
        gate.layout,
        inputs_first,
        gate.limit,
        gate.alpha,
        gate.shift,
        0,
        len(matrices[-1]),
        True,
    )
    kept = torch.ops.alpa_explore.experts(tokens, chosen, weights, matrices, biases, *options)[1:]
    given = (real(T, M), chosen, weights, *kept, matrices, biases)
    return (
        Call("alpa_explore.experts.default", tokens, chosen, weights, matrices, biases, *options, factors=""),
        Call("alpa_explore.experts_backward.default", *given, *options, factors=""),
    )


SETTINGS = {
    "silu": {"gate": Gate()},
    "torch's layout": {"gate": Gate("silu", "concatenated"), "inputs_first": False},
    "no gate": {"gate": Gate("relu2", "plain"), "inputs_first": False, "biased": True},
    "gpt-oss": {"gate": GPT_OSS, "biased": True},
    "gelu, limited": {"gate": Gate("gelu_tanh", "separate", 0.5), "biased": True, "inputs_first": False},
    "few busy experts": {"gate": Gate("gelu"), "skewed": True},
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_the_operator_computes_its_definition_and_its_gradients(setting):
    tokens, chosen, weights, matrices, biases, gate, inputs_first = example(**setting)
    trained = [t.requires_grad_() for t in (tokens, weights, *matrices, *biases)]
    expected = routed_experts(tokens, chosen, weights, matrices, biases, gate=gate, inputs_first=inputs_first)
    options = (gate.activation, gate.layout, inputs_first, gate.limit, gate.alpha, gate.shift, 0, E, True)
    found = torch.ops.alpa_explore.experts(tokens, chosen, weights, matrices, biases, *options)[0]
    torch.testing.assert_close(found, expected)
    dy = torch.randn_like(expected)
    torch.testing.assert_close(torch.autograd.grad(found, trained, dy), torch.autograd.grad(expected, trained, dy))


PROVEN = [(setting, MESHES) for setting in SETTINGS.values()]
PROVEN.append(pytest.param({"gate": Gate(), "biased": True}, ((2, 2, 2), (4, 2)), marks=pytest.mark.slow))


@pytest.mark.parametrize(("setting", "meshes"), PROVEN, ids=[*SETTINGS, "three axes"])
def test_every_strategy_computes_the_whole(setting, meshes):
    prove(example(**setting), meshes)


def prove(given, meshes):
    used = set()
    (forward, tensors, values), (backward, more, given_back) = (call.build() for call in calls(*given))
    splits = [splits_for(o, t).splits for o, t in ((forward, tensors), (backward, more))]
    for mesh in meshes:
        back = {s.factors: s for s in strategies(splits[1], backward, more, mesh)}
        for strategy in strategies(splits[0], forward, tensors, mesh):
            made = on_devices(forward, tensors, values, strategy, mesh)
            name = f"{strategy.name} on {mesh}"
            assert_equal(joined(made, strategy, mesh, 0), values[forward.outputs[0]], name)
            kept = {c: outputs[1:] for c, outputs in made.items()}
            gradients = on_devices(backward, more, given_back, back[strategy.factors], mesh, kept=kept)
            for place, tensor in enumerate(backward.outputs):
                found = joined(gradients, back[strategy.factors], mesh, place)
                assert_equal(found, given_back[tensor], f"gradient {place}, {name}")
            used |= set(strategy.factors)
    inner = {"inner"} if given[5].layout != "concatenated" else set()
    assert used == {"-", "tokens", "experts", "exchange"} | inner


def test_expert_gradients_are_summed_only_over_devices_that_share_the_expert():
    _, backward = calls(*example(Gate()))
    operator, tensors, _ = backward.build()
    by_name = {s.name: s for s in strategies(splits_for(operator, tensors).splits, operator, tensors, (2, 4))}
    assert by_name["tokens·experts"].outputs[2] == (PARTIAL, 0)
    assert by_name["experts·inner"].outputs[2] == (0, 2)
    assert by_name["experts·inner"].outputs[4] == (0, 1)
    assert by_name["tokens·exchange"].outputs[2] == (PARTIAL, 0)
    assert by_name["exchange·exchange"].outputs[2] == (0, 0)


def on_devices(operator, tensors, values, strategy, mesh, kept=None):
    """{coordinate: outputs}; `kept`: {coordinate: (rows, hidden)} in place of cut ones."""
    coordinates = list(itertools.product(*map(range, mesh)))
    cut = [
        pieces(values[t], spec, mesh) if kept is None or place not in (3, 4) else {c: kept[c][place - 3] for c in kept}
        for place, (t, spec) in enumerate(zip(operator.inputs, strategy.inputs, strict=True))
    ]
    steps = {c: localize(operator, tensors, strategy, mesh, c) for c in coordinates}
    return run_locally(steps, {c: [piece[c] for piece in cut] for c in coordinates}, mesh)


def joined(made, strategy, mesh, place):
    return whole({c: outputs[place] for c, outputs in made.items()}, strategy.outputs[place], mesh)
