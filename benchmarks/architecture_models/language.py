"""Transformers of torch's own modules and in plain torch; all read tokens and return their loss."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

SAMPLES, POSITIONS, WORDS, WIDTH, HEADS = 8, 64, 1024, 256, 8


class Attention(nn.Module):
    """Queries, keys and values by one product; `how` is the way the scores are used."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.qkv, self.out, self.how = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.how == "flex":
            mixed = flex_attention(q, k, v, score_mod=_distance)
        elif self.how == "flex-blocks":
            mixed = flex_attention(
                q, k, v, block_mask=create_block_mask(_causal, None, None, POSITIONS, POSITIONS, x.device)
            )
        elif self.how == "linear":  # Katharopoulos 2020
            q, k = F.elu(q) + 1, F.elu(k) + 1
            mixed = q @ (k.transpose(-1, -2) @ v) / (q * k.sum(2, keepdim=True)).sum(-1, keepdim=True)
        elif self.how == "retention":  # Sun 2023
            steps = torch.arange(POSITIONS)
            decay = 0.9 ** (steps.unsqueeze(1) - steps).clamp(min=0) * (steps.unsqueeze(1) >= steps)
            mixed = (q @ k.transpose(-1, -2) * decay) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def _distance(score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return score - 0.1 * (q - k).abs()


def _causal(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q >= k


class Experts(nn.Module):
    """Experts in a loop, each of which finds its tokens: `where` says how."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.router, self.where = nn.Linear(WIDTH, 4), where
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, WIDTH)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1).topk(2, -1)
        result = torch.zeros_like(rows)
        for index, expert in enumerate(self.experts):
            if self.where == "nonzero":
                token, place = torch.nonzero(chosen == index, as_tuple=True)
                result = result.index_add(0, token, expert(rows[token]) * weights[token, place].unsqueeze(-1))
            else:
                share = (weights * (chosen == index)).sum(-1, keepdim=True)
                result = result + share * expert(rows)
        return result.view_as(x)


class Block(nn.Module):
    """Norm, attention, norm, network."""

    def __init__(self, how: str, mlp: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.attention, self.mlp = (
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
            Attention(how),
            mlp,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Decoder(nn.Module):
    """Two blocks over embedded tokens; the head shares the embedding's weight."""

    def __init__(self, how: str = "sdpa", experts: str = "") -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.zeros(POSITIONS, WIDTH))

        def mlp() -> nn.Module:
            plain = (nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            return Experts(experts) if experts else nn.Sequential(*plain)

        self.blocks, self.norm = nn.Sequential(*(Block(how, mlp()) for _ in range(2))), nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.blocks(self.table(tokens) + self.places))
        return F.cross_entropy((x @ self.table.weight.T).flatten(0, 1), targets.flatten())


class Encoder(nn.Module):
    """torch's own encoder layers, a class for every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 8)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.layers(self.table(tokens)).mean(1)), targets[:, 0])


class EncoderDecoder(nn.Module):
    """torch's own transformer (Vaswani 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.body = nn.Transformer(WIDTH, HEADS, 2, 2, 4 * WIDTH, batch_first=True)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(POSITIONS)
        x = self.body(self.table(tokens), self.table(targets), tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Latents(nn.Module):
    """A few learned rows that read the tokens (Perceiver, Jaegle 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.latents = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.zeros(16, WIDTH))
        self.read, self.block = (
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
            Block("sdpa", nn.Linear(WIDTH, WIDTH)),
        )
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x, given = self.latents.expand(tokens.shape[0], -1, -1), self.table(tokens)
        x = self.block(self.read(x, given, given, need_weights=False)[0])
        return F.cross_entropy(self.head(x.mean(1)), targets[:, 0])


class Convolutional(nn.Module):
    """Convolutions of several widths over words, their maxima (Kim 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(300, 8)
        self.widths = nn.ModuleList(nn.Conv1d(WIDTH, 100, k, padding=k // 2) for k in (3, 4, 5))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens).transpose(1, 2)
        found = torch.cat([F.relu(c(x)).amax(-1) for c in self.widths], -1)
        return F.cross_entropy(self.head(F.dropout(found)), targets[:, 0])


class SkipGram(nn.Module):
    """Words and their neighbours against drawn words (word2vec, Mikolov 2013)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.neighbours = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        near = (x * self.neighbours(targets)).sum(-1)
        drawn = torch.randint(WORDS, (*tokens.shape, 5), device=tokens.device)
        far = (self.neighbours(drawn) @ x.unsqueeze(-1)).squeeze(-1)
        return -F.logsigmoid(near).mean() - F.logsigmoid(-far).mean()


def _words(model: nn.Module) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    tokens = torch.zeros(SAMPLES, POSITIONS, dtype=torch.int64)
    return model, (tokens, tokens)


MODELS = {
    "decoder-own": lambda: _words(Decoder()),
    "linear-attention": lambda: _words(Decoder("linear")),
    "retention": lambda: _words(Decoder("retention")),
    "flex-attention": lambda: _words(Decoder("flex")),
    "flex-attention-blocks": lambda: _words(Decoder("flex-blocks")),
    "moe-masked": lambda: _words(Decoder(experts="masked")),
    "moe-nonzero": lambda: _words(Decoder(experts="nonzero")),
    "torch-encoder": lambda: _words(Encoder()),
    "torch-transformer": lambda: _words(EncoderDecoder()),
    "perceiver-own": lambda: _words(Latents()),
    "text-cnn": lambda: _words(Convolutional()),
    "word2vec": lambda: _words(SkipGram()),
}
"""Name -> its model and inputs; called under `torch.device("meta")`."""
