"""What has no shape, or no backward pass, before it runs is captured in a form that has: loss and gradients are those
of torch."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from alpa_explore.errors import CaptureError
from alpa_explore.sharding.splits import splits_for, with_discovered_splits
from alpa_explore.tracing.capture import capture
from tests.one_layer import OneLayer
from tests.tracing.autograd import assert_autograd


def assert_captured(model, inputs, reference=None):
    """The captured graph gives the loss and gradients of `reference` (or the model), and every operator divides."""
    graph = with_discovered_splits(capture(model, inputs))
    assert_autograd(graph, model, inputs, called=reference)
    assert "replicated" not in {splits_for(o, graph.tensors).how for o in graph.operators}
    return graph


class Speech(nn.Module):
    """Frames to letters; `selected` gives the targets in one row, as Hugging Face's models do."""

    def __init__(self, selected, reduction):
        super().__init__()
        self.head, self.selected, self.reduction = nn.Linear(8, 6), selected, reduction

    def forward(self, frames, letters):
        scores = self.head(frames).log_softmax(-1).transpose(0, 1)
        mask = letters > 0
        lengths = mask.sum(-1)
        targets = letters.masked_select(mask) if self.selected else letters
        long = torch.full((len(frames),), frames.shape[1])
        return F.ctc_loss(scores, targets, long, lengths, reduction=self.reduction, zero_infinity=True).sum()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("selected", [False, True])
def test_ctc_gives_the_loss_and_gradients_of_torch(selected, reduction):
    torch.manual_seed(0)
    letters = torch.tensor([[1, 2, 2, 0, 0], [3, 0, 0, 0, 0], [5, 4, 3, 2, 0]])
    assert_captured(Speech(selected, reduction), (torch.randn(3, 12, 8), letters))


def test_what_a_mask_selects_has_no_shape_elsewhere():
    class Selects(OneLayer):
        def forward(self, frames, letters):
            return self.layer(frames).sum() + letters.masked_select(letters > 0).sum()

    with pytest.raises(CaptureError, match="masked_select"):
        capture(Selects(8, 6), (torch.randn(3, 12, 8), torch.ones(3, 5, dtype=torch.int64)))


def distance(score, sample, head, query, key):
    return score - 0.1 * (head + 1) * (query - key).abs()


def causal(sample, head, query, key):
    return query >= key


class Flexible(nn.Module):
    """flex_attention with grouped keys; `plain` is its definition."""

    def __init__(self, score, mask):
        super().__init__()
        self.q, self.kv, self.score, self.mask = nn.Linear(16, 32), nn.Linear(16, 32), score, mask

    def projected(self, x):
        q, (k, v) = self.q(x).unflatten(-1, (4, 8)).transpose(1, 2), self.kv(x).unflatten(-1, (2, 2, 8)).unbind(2)
        return q, k.transpose(1, 2), v.transpose(1, 2)

    def forward(self, x):
        q, k, v = self.projected(x)
        blocks = create_block_mask(self.mask, None, None, x.shape[1], x.shape[1], x.device) if self.mask else None
        return flex_attention(q, k, v, self.score, blocks, enable_gqa=True).square().sum()

    def plain(self, x):
        q, k, v = self.projected(x)
        scores = q @ k.repeat_interleave(2, 1).transpose(-2, -1) / 8**0.5
        place = torch.arange(x.shape[1])
        rows, columns = place.view(-1, 1), place
        if self.score:
            scores = scores - 0.1 * torch.arange(1, 5).view(4, 1, 1) * (rows - columns).abs()
        if self.mask:
            scores = scores.masked_fill(rows < columns, -torch.inf)
        return (scores.softmax(-1) @ v.repeat_interleave(2, 1)).square().sum()


@pytest.mark.parametrize("score", [None, distance])
@pytest.mark.parametrize("mask", [None, causal])
def test_flex_attention_is_its_definition(score, mask):
    torch.manual_seed(0)
    model = Flexible(score, mask)
    graph = assert_captured(model, (torch.randn(2, 12, 16),), model.plain)
    whole = any(o.kind == "alpa_explore.attention.default" for o in graph.operators)
    assert whole == (score is None)


class Writes(nn.Module):
    """Frames that a mask covers are replaced by a learned one (wav2vec 2.0)."""

    def __init__(self, value):
        super().__init__()
        self.cover, self.head, self.value = nn.Parameter(torch.randn(8)), nn.Linear(8, 8), value

    def forward(self, x):
        x = self.head(x)
        mask = x[..., 0] > 0
        x[mask] = self.cover if self.value is None else self.value
        return (x * self.cover).square().sum()


@pytest.mark.parametrize("value", [None, 2.0])
def test_a_write_at_the_places_of_a_mask_is_a_choice(value):
    torch.manual_seed(0)
    assert_captured(Writes(value), (torch.randn(3, 5, 8),))


class Checked(OneLayer):
    def forward(self, x, labels):
        if labels is not None and labels.max() >= 6:
            raise ValueError("labels")
        if not (labels >= 0).all():
            raise ValueError("labels")
        assert (x < 1e9).all(), "numbers"
        assert labels.max().item() < 6, "labels"
        if labels is None or not 0 <= labels.min().item() < 6:
            raise ValueError("labels")
        torch._check_tensor_all(labels >= 0)
        return F.cross_entropy(self.layer(x), labels)


def test_checks_of_values_are_taken_as_passed():
    torch.manual_seed(0)
    assert_captured(Checked(8, 6), (torch.randn(4, 8), torch.randint(6, (4,))))


class Branches(OneLayer):
    def __init__(self, above):
        super().__init__(8, 6)
        self.above = above

    def forward(self, x, labels):
        if self.above(labels.max()):
            x = x * 2
        return F.cross_entropy(self.layer(x), labels)


def counted(most):
    number = most.item()
    assert number >= 0
    return number


@pytest.mark.parametrize("above", [lambda most: most >= 3, lambda most: most.item() >= 3, counted])
def test_a_branch_that_computes_is_not_a_check(above):
    with pytest.raises(CaptureError, match="has shapes, not values"):
        capture(Branches(above), (torch.randn(4, 8), torch.randint(6, (4,))))


class Convolved(nn.Module):
    """A view of the hidden states that is equal to one before a transpose of them (ConvBERT)."""

    def __init__(self):
        super().__init__()
        self.norm, self.key, self.query = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.convolution = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x):
        x = self.norm(x)
        key = self.key(x)
        near = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return (key * near * self.query(x)).sum()


def test_gradients_of_merged_views_flow_backwards():
    torch.manual_seed(0)
    assert_captured(Convolved(), (torch.randn(2, 4, 8),))


class Padded(OneLayer):
    """Reads a mask of its own that it has written to (Longformer)."""

    def forward(self, x):
        mask = torch.ones(x.shape[:2])
        mask[:, -1] = 0
        mask[mask == 0] = -1
        x = self.layer(x)
        if (mask > 1).any().item():
            x = x * 3
        if (mask < 0).any():
            x = x * 2
        return x.square().sum()


def test_a_known_tensor_that_is_written_to_stays_known():
    assert_captured(Padded(), (torch.randn(2, 4, 8),))


class Clicks(nn.Module):
    """Scores of bags, and the chance that each is clicked."""

    def __init__(self, mode: str, last: bool) -> None:
        super().__init__()
        self.table, self.top = nn.EmbeddingBag(64, 16, mode=mode, include_last_offset=last), nn.Linear(16, 1)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor | None, clicked: torch.Tensor) -> torch.Tensor:
        scores = self.top(self.table(indices, offsets)).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, clicked, pos_weight=torch.full((), 2.0))


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize(
    ("offsets", "last"),
    [(None, False), ([0, 4, 4, 20], False), ([0, 4, 4, 20, 32], True)],
    ids=["rows", "bags", "last"],
)
def test_bags_and_clicks_give_the_loss_and_gradients_of_torch(mode, offsets, last):
    torch.manual_seed(0)
    model = Clicks(mode, last)
    indices = torch.randint(64, (4, 8) if offsets is None else (32,))
    inputs = (indices, None if offsets is None else torch.tensor(offsets), torch.rand(4))
    graph = assert_captured(model, inputs)
    assert {splits_for(o, graph.tensors).how for o in graph.operators} == {"rule"}
