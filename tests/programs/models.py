"""Models for programs beside the catalogue's: (model, one microbatch) by name, with the loss that the model returns."""

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional

from alpa_explore.models.catalog import build
from alpa_explore.models.configs import DecoderConfig, GPTConfig
from alpa_explore.models.factory import make_inputs, make_module
from alpa_explore.models.routed_experts import routed_experts


def llama(samples):
    """Hugging Face's, with grouped queries."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
    )
    tokens = torch.randint(1, 128, (samples, 16))
    return transformers.AutoModelForCausalLM.from_config(config), {"input_ids": tokens, "labels": tokens}


class FusedAttention(nn.Module):
    """A language model with causal attention by torch's function, grouped queries and a skip connection."""

    def __init__(self, heads=4, shared=2, size=8):
        super().__init__()
        self.shapes = (heads, shared, shared)
        self.table = nn.Embedding(32, heads * size)
        self.norms = nn.ModuleList(nn.LayerNorm(heads * size) for _ in range(2))
        self.projections = nn.ModuleList(
            nn.ModuleList(nn.Linear(heads * size, h * size, bias=False) for h in self.shapes) for _ in range(2)
        )
        self.outs = nn.ModuleList(nn.Linear(heads * size, heads * size) for _ in range(2))

    def forward(self, tokens, targets):
        x = self.table(tokens)
        for norm, projections, out in zip(self.norms, self.projections, self.outs, strict=True):
            normal = norm(x)
            q, k, v = (
                project(normal).unflatten(-1, (heads, -1)).transpose(1, 2)
                for project, heads in zip(projections, self.shapes, strict=True)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + out(mixed.transpose(1, 2).flatten(2))
        return functional.cross_entropy((x @ self.table.weight.T).flatten(0, 1), targets.flatten())


class RoutedExperts(nn.Module):
    """A language model of two blocks of routed experts: a router in fp32, the best two of eight experts, one of them
    with biases."""

    def __init__(self, size=16, inner=16, experts=8):
        super().__init__()
        self.table = nn.Embedding(32, size)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.routers = nn.ModuleList(nn.Linear(size, experts, bias=False) for _ in range(2))
        shapes = ((experts, size, inner), (experts, size, inner), (experts, inner, size))
        draw = [[torch.randn(shape) / 4 for shape in shapes] for _ in range(2)]
        self.matrices = nn.ModuleList(nn.ParameterList(block) for block in draw)
        self.biases = nn.ParameterList(torch.randn(experts, width) for width in (inner, inner, size))

    def forward(self, tokens, targets):
        x = self.table(tokens)
        for place, (norm, router, matrices) in enumerate(zip(self.norms, self.routers, self.matrices, strict=True)):
            normal = norm(x).flatten(0, 1)
            weights, chosen = torch.topk(torch.softmax(router(normal).float(), -1), 2)
            weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
            biases = list(self.biases) if place else []
            x = x + routed_experts(normal, chosen, weights, list(matrices), biases).view(x.shape)
        return functional.cross_entropy((x @ self.table.weight.T).flatten(0, 1), targets.flatten())


class Recurrent(nn.Module):
    """A language model of recurrent layers in both directions and one that goes on from their last states."""

    def __init__(self, kind):
        super().__init__()
        self.table = nn.Embedding(32, 8)
        self.read = kind(8, 8, 2, batch_first=True, bidirectional=True)
        self.write, self.head = kind(16, 8), nn.Linear(8, 32)

    def forward(self, tokens, targets):
        read, last = self.read(self.table(tokens))
        state = tuple(s[-1:] for s in last) if isinstance(last, tuple) else last[-1:]
        written, _ = self.write(read.transpose(0, 1), state)
        return functional.cross_entropy(self.head(written).flatten(0, 1), targets.transpose(0, 1).flatten())


class LinearScans(nn.Module):
    """A language model of one time mix of RWKV and one selective scan of Mamba."""

    def __init__(self):
        super().__init__()
        self.table, self.mixed = nn.Embedding(32, 8), nn.Linear(8, 16, bias=False)
        self.decay, self.first = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))
        self.read, self.step, self.of_state = nn.Linear(8, 32), nn.Linear(16, 16), nn.Linear(16, 8)
        self.log, self.skip = nn.Parameter(torch.randn(16, 4)), nn.Parameter(torch.randn(16))
        self.head = nn.Linear(16, 32)

    def forward(self, tokens, targets):
        key, value = self.mixed(self.table(tokens)).chunk(2, -1)
        mixed = torch.ops.alpa_explore.wkv(-torch.exp(self.decay), self.first, key, value)
        x, z = self.read(mixed).transpose(1, 2).chunk(2, 1)
        b, c = self.of_state(x.transpose(1, 2)).transpose(1, 2).chunk(2, 1)
        delta = self.step.weight @ x
        made, _ = torch.ops.alpa_explore.selective_scan(
            x, delta, -torch.exp(self.log), b, c, self.skip, z, self.step.bias, True
        )
        return functional.cross_entropy(self.head(made.transpose(1, 2)).flatten(0, 1), targets.flatten())


class Scanned(nn.Module):
    """A language model of a scan of torch, whose step is elementwise, and one of a step with products."""

    def __init__(self):
        super().__init__()
        self.table, self.decay, self.cell = nn.Embedding(32, 8), nn.Parameter(torch.randn(8)), nn.GRUCell(8, 8)
        self.head = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 32))

    def forward(self, tokens, targets):
        def forget(state, now):
            state = torch.sigmoid(self.decay) * state + now
            return state, torch.tanh(state)

        def read(state, now):
            state = self.cell(now, state)
            return state, state * 1.5

        words = self.table(tokens)
        begin = torch.zeros_like(words[:, 0])
        state, made = scan(forget, begin, words, dim=1)
        _, made = scan(read, state, made, dim=1, reverse=True)
        return functional.cross_entropy(self.head(made).flatten(0, 1), targets.flatten())


class ThreeTimes(nn.Module):
    """One weight in three layers."""

    def __init__(self):
        super().__init__()
        self.shared, self.out = nn.Linear(16, 16, bias=False), nn.Linear(16, 1)

    def forward(self, x, y):
        for _ in range(3):
            x = torch.tanh(self.shared(x))
        return functional.mse_loss(self.out(x), y)


class TiedEmbedding(nn.Module):
    """A language model whose first and last layer use one table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 16)
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, tokens, targets):
        hidden = torch.tanh(self.second(torch.tanh(self.first(self.table(tokens)))))
        return functional.cross_entropy((hidden @ self.table.weight.T).flatten(0, 1), targets.flatten())


class Scores(nn.Module):
    """A loss over targets that are shifted, as a language model's are, beside a term without targets."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.first, self.second = kind, nn.Linear(16, 16), nn.Linear(16, 8)

    def _scores(self, x, labels):
        scores = self.second(torch.tanh(self.first(x)))
        targets = functional.pad(labels[:, 1:], (0, 1), value=-100).flatten()
        return scores, scores.detach().flatten(0, 1).argmax(1) if self.kind == "own" else targets

    def forward(self, x, labels, weight):
        scores, targets = self._scores(x, labels)
        weight = weight if self.kind == "weighted" else None
        return functional.cross_entropy(scores.flatten(0, 1), targets, weight=weight) + 0.1 * scores.square().mean()

    def parts(self, x, labels, weight):
        """(sum of the losses, number or weight of the targets, the rest)."""
        scores, targets = self._scores(x, labels)
        weight = weight if self.kind == "weighted" else torch.ones_like(weight)
        losses = functional.cross_entropy(scores.flatten(0, 1), targets, weight=weight, reduction="sum")
        return losses, weight[targets[targets >= 0]].sum(), 0.1 * scores.square().mean()


class Drawing(nn.Module):
    """Dropout, which a rule divides, and a permutation, which none does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x, y):
        hidden = functional.dropout(torch.relu(self.first(x)), 0.5, training=True)
        hidden = hidden * (1 + torch.randperm(64).to(x.dtype) / 64)
        return functional.mse_loss(self.second(functional.dropout(hidden, 0.1, training=True)), y)


def decoder(config):
    """A decoder of the catalogue's, with a config of its own."""
    return lambda samples: (make_module(config, "cpu", 0), make_inputs(config, samples, "cpu", 0))


def with_sinks(samples):
    """Two blocks of attention with sinks, the first with a window."""
    size = {"hidden": 32, "layers": 2, "heads": 8, "kv_heads": 4, "head": 4, "vocabulary": 64, "sequence": 16}
    model, inputs = decoder(DecoderConfig(family="own", **size, ffn=64, window=5, sinks=True))(samples)
    for block in model.h:
        nn.init.normal_(block.attention.sinks)
    return model, inputs


def decoders(blocks):
    """Small decoders of so many blocks: spelled-out and fused attention, tied and
    untied, with layer norms and RMS norms."""
    size = {"hidden": 32, "layers": blocks, "heads": 4, "vocabulary": 64, "sequence": 16}
    return {
        f"gpt of {blocks}": decoder(GPTConfig(**size)),
        f"fused gpt of {blocks}": decoder(GPTConfig(**size, attention="fused", tied=False)),
        f"llama of {blocks}": decoder(DecoderConfig(**size, kv_heads=4, ffn=64)),
        f"tied llama of {blocks}": decoder(DecoderConfig(**size, kv_heads=2, ffn=64, tied=True)),
        f"fused llama of {blocks}": decoder(DecoderConfig(**size, kv_heads=2, ffn=64, fused_projections=True)),
    }


def scores(kind):
    return lambda samples: (
        Scores(kind),
        {"x": torch.randn(samples, 6, 16), "labels": torch.randint(0, 8, (samples, 6)), "weight": torch.rand(8) + 0.5},
    )


OWN = {
    **decoders(1),
    **decoders(2),
    "llama-tiny": llama,
    "with-sinks": with_sinks,
    "fused-attention": lambda samples: (
        FusedAttention(),
        (torch.randint(0, 32, (samples, 8)), torch.randint(0, 32, (samples, 8))),
    ),
    "routed-experts": lambda samples: (
        RoutedExperts(),
        (torch.randint(0, 32, (samples, 8)), torch.randint(0, 32, (samples, 8))),
    ),
    **{
        f"recurrent-{kind.__name__.lower()}": lambda samples, kind=kind: (
            Recurrent(kind),
            (torch.randint(0, 32, (samples, 6)), torch.randint(0, 32, (samples, 6))),
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
    },
    "linear-scans": lambda samples: (
        LinearScans(),
        (torch.randint(0, 32, (samples, 6)), torch.randint(0, 32, (samples, 6))),
    ),
    "scans": lambda samples: (Scanned(), (torch.randint(0, 32, (samples, 6)), torch.randint(0, 32, (samples, 6)))),
    "three-times": lambda samples: (ThreeTimes(), (torch.randn(samples, 16), torch.randn(samples, 1))),
    "tied-embedding": lambda samples: (
        TiedEmbedding(),
        (torch.randint(0, 32, (samples, 6)), torch.randint(0, 32, (samples, 6))),
    ),
    "drawing": lambda samples: (Drawing(), (torch.randn(samples, 16), torch.randn(samples, 16))),
    "scores": scores("plain"),
    "weighted-scores": scores("weighted"),
    "own-targets": scores("own"),
}


def build_any(name, samples):
    """A model of the catalogue, or one of these."""
    return OWN[name](samples) if name in OWN else build(name, samples, device="cpu")
