"""Calls of torch's LSTM, GRU and RNN (`nn.LSTM` and the others make them), by the operators of
`tracing.fused.recurrence`.

torch decomposes them on fake tensors into a few operators for each step. Here a layer and direction is one product with
the weights of its inputs, over all steps, and one recurrence. Samples come first in both, whatever the model gives:
then they, and with them the work, can be divided. An LSTM with projections (`proj_size`) is torch's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn import functional

from alpa_explore.errors import CaptureError
from alpa_explore.tracing.autocast import lowered
from alpa_explore.tracing.fused import recurrence

_Run = Callable[[Tensor, Tensor, Tensor | None, Sequence[Tensor], bool], Sequence[Tensor]]
"""(gates, weight, bias inside the recurrence, states before the first step, reverse) -> every h and the other states
after the last step."""


def lstm(input: Tensor, states: Any, weights: Any, *options: Any) -> tuple[Tensor, ...]:
    """What `torch.lstm` returns: outputs, last h, last c."""
    if not isinstance(states, Tensor) and states[0].shape[-1] != states[1].shape[-1]:  # h is smaller than c
        return torch.lstm(input, states, weights, *options)
    _refuse_packed(states)
    return _layers(_lstm, True, input, states, weights, *options)


def _of_one_state(run: _Run, *, outside: bool) -> Callable[..., tuple[Tensor, ...]]:
    """What `torch.gru` and the others of one state return: outputs, last h."""

    def layers(input: Tensor, h: Tensor, weights: Any, *options: Any) -> tuple[Tensor, ...]:
        _refuse_packed(weights)
        return _layers(run, outside, input, (h,), weights, *options)

    return layers


def packed(*arguments: Any, **keywords: Any) -> NoReturn:
    """Sequences of unlike lengths in one row have a shape that depends on the lengths."""
    raise CaptureError(
        "Packed sequences cannot be captured",
        found="pack_padded_sequence, or a recurrent layer that reads a PackedSequence",
        remedy="Give the padded tensor to the recurrent layer, and leave the padding out of the loss (ignore_index, or "
        "a mask); an LSTM, GRU or RNN in one direction computes the same for the positions that are not padding.",
    )


def _layers(
    run: _Run,
    outside: bool,
    input: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The outputs and each of the last states [layers · directions, n, hidden]; `states` are those before the first
    step. Where both biases are added to the gates `outside` the recurrence, they are added once, to all steps."""
    (input,), states, weights = lowered(input), lowered(*states), lowered(*weights)
    x = input if batch_first else input.transpose(0, 1)
    each, directions = 4 if biased else 2, 2 if bidirectional else 1
    last = []
    for layer in range(layers):
        made = []
        for direction in range(directions):
            place = layer * directions + direction
            w_in, w_state, *biases = weights[place * each : (place + 1) * each]
            inner = biases[1] if biases and not outside else None
            bias = None if not biases else biases[0] + biases[1] if outside else biases[0]
            gates = functional.linear(x, w_in, bias)
            reverse = direction == 1
            every, *others = run(gates, w_state, inner, [s[place] for s in states], reverse)
            made.append(every)
            last.append((every[:, 0 if reverse else -1], *others))
        x = torch.cat(made, -1) if bidirectional else made[0]
        if dropout > 0 and training and layer + 1 < layers:
            x = functional.dropout(x, dropout)
    return x if batch_first else x.transpose(0, 1), *(torch.stack(state) for state in zip(*last, strict=True))


def _lstm(gates: Tensor, weight: Tensor, _: Tensor | None, states: Sequence[Tensor], reverse: bool) -> Sequence[Tensor]:
    made: tuple[Tensor, ...] = recurrence.lstm_recurrence(gates, weight, *states, reverse)
    return made[:2]


def _gru(
    gates: Tensor, weight: Tensor, bias: Tensor | None, states: Sequence[Tensor], reverse: bool
) -> Sequence[Tensor]:
    made: tuple[Tensor, ...] = recurrence.gru_recurrence(gates, weight, bias, states[0], reverse)
    return made[:1]


def _rnn(*, relu: bool) -> _Run:
    def run(
        gates: Tensor, weight: Tensor, _: Tensor | None, states: Sequence[Tensor], reverse: bool
    ) -> Sequence[Tensor]:
        return [recurrence.rnn_recurrence(gates, weight, states[0], reverse, relu)]

    return run


CALLS: Mapping[Any, Callable[..., Any]] = {
    torch.lstm: lstm,
    torch.gru: _of_one_state(_gru, outside=False),
    torch.rnn_tanh: _of_one_state(_rnn(relu=False), outside=True),
    torch.rnn_relu: _of_one_state(_rnn(relu=True), outside=True),
    torch._VF._pack_padded_sequence: packed,
}
"""torch's own functions, and what takes their place."""


def _refuse_packed(third: Any) -> None:
    """The lengths of a packed sequence stand before the states."""
    if isinstance(third, Tensor):
        packed()
