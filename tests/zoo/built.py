"""Modules as their users write them: classes with parts of their own, from papers and tutorials.

They are entries of `ZOO`, as those of `modules` are; `built` enters a class.

It has more than 500 lines because it is a list.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm

from tests.zoo.modules import REFUSED, SAMPLES, ZOO, Kind


def built(name: str, draw: Callable[[torch.Generator], Any]) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Decorator: enter a class whose modules return their loss; `draw` makes the inputs of a microbatch."""

    def enter(made: type[nn.Module]) -> type[nn.Module]:
        def make() -> Kind:
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(3)
                model = made()
            return Kind(model=model, inputs=lambda number: draw(torch.Generator().manual_seed(1000 + number)))

        assert name not in ZOO
        ZOO[name] = make
        return made

    return enter


def normal(g: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(SAMPLES, *shape, generator=g)


def numbers(g: torch.Generator, most: int, *shape: int) -> torch.Tensor:
    return torch.randint(most, (SAMPLES, *shape), generator=g)


def mlp(inner: int = 12, middle: int = 24, outer: int = 12) -> nn.Module:
    return nn.Sequential(nn.Linear(inner, middle), nn.GELU(), nn.Linear(middle, outer))


@built("tied parametrization", lambda g: (normal(g, 12),))
class TiedParam(nn.Module):
    """tying through a parametrization: decoder weight = encoder weight^T"""

    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(12, 6)
        self.dec = nn.Linear(6, 12)
        enc = self.enc

        class T(nn.Module):
            def forward(self, w):
                return 0.5 * (w + enc.weight.t())

        parametrize.register_parametrization(self.dec, "weight", T())

    def forward(self, x):
        return F.mse_loss(self.dec(torch.tanh(self.enc(x))), x)


@built("bidirectional lstm proj", lambda g: (numbers(g, 20, 7), numbers(g, 5)))
class BiLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.l = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True, proj_size=4)
        self.o = nn.Linear(8, 5)

    def forward(self, i, y):
        h, (_a, _c) = self.l(self.e(i))
        return F.cross_entropy(self.o(h.mean(1)), y)


@built("gru last of length", lambda g: (normal(g, 7, 8), numbers(g, 7) + 1, numbers(g, 5)))
class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.GRU(8, 6, batch_first=True, num_layers=2)
        self.o = nn.Linear(6, 5)

    def forward(self, x, n, y):
        h, _ = self.l(x)
        last = h.gather(1, (n - 1)[:, None, None].expand(-1, 1, h.shape[-1])).squeeze(1)
        return F.cross_entropy(self.o(last), y)


@built(
    "mha kdim vdim pad weights",
    lambda g: (
        normal(g, 5, 12),
        normal(g, 6, 10),
        normal(g, 6, 14),
        torch.arange(6).expand(SAMPLES, 6) >= (numbers(g, 5) + 1)[:, None],
    ),
)
class MHA(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(12, 12)
        self.m = nn.MultiheadAttention(12, 3, kdim=10, vdim=14, batch_first=True, add_bias_kv=True, add_zero_attn=True)

    def forward(self, x, k, v, pad):
        o, w = self.m(self.q(x), k, v, key_padding_mask=pad, average_attn_weights=False)
        return o.pow(2).mean() + w.pow(2).mean()


@built("mha causal seq first", lambda g: (normal(g, 5, 12),))
class MHACausal(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.MultiheadAttention(12, 3)
        self.o = nn.Linear(12, 4)

    def forward(self, x):
        x = x.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[0])
        o, _ = self.m(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
        return self.o(o).pow(2).mean()


@built("nn.Transformer", lambda g: (numbers(g, 11, 6), numbers(g, 11, 5)))
class FullTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Transformer(12, 3, 2, 2, 24, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.e = nn.Embedding(11, 12)
        self.o = nn.Linear(12, 11)

    def forward(self, src, tgt):
        m = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1] - 1)
        h = self.t(
            self.e(src),
            self.e(tgt[:, :-1]),
            tgt_mask=m,
            src_key_padding_mask=(src == 0).clone().index_fill(1, torch.tensor([0]), False),
        )
        return F.cross_entropy(self.o(h).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0)


@built("conv transpose groups output padding", lambda g: (normal(g, 4, 8, 8),))
class ConvT(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2, dilation=1),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=1),
        )

    def forward(self, x):
        return F.l1_loss(self.n(x), x)


@built("embedding bags mean max padding", lambda g: (numbers(g, 30, 5), normal(g, 5), torch.rand(SAMPLES, generator=g)))
class EBag(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.EmbeddingBag(30, 12, mode="mean", padding_idx=0)
        self.b = nn.EmbeddingBag(30, 12, mode="max")
        self.o = nn.Linear(24, 1)

    def forward(self, i, w, y):
        return F.binary_cross_entropy_with_logits(
            self.o(torch.cat([self.a(i), self.b(i)], 1)).squeeze(1), y, pos_weight=torch.tensor(2.0)
        )


@built("embedding bag weights", lambda g: (numbers(g, 30, 5), normal(g, 5)))
class EBagW(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.EmbeddingBag(30, 12, mode="sum")
        self.o = nn.Linear(12, 1)

    def forward(self, i, w):
        return self.o(self.a(i, per_sample_weights=w)).pow(2).mean()


@built("alibi baddbmm", lambda g: (normal(g, 6, 16),))
class Alibi(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.o = nn.Linear(16, 16)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = [y.view(b, t, 4, 4).transpose(1, 2) for y in self.qkv(x).split(16, -1)]
        slopes = torch.pow(2.0, -torch.arange(1, 5) * 2.0)
        d = torch.arange(t)[None] - torch.arange(t)[:, None]
        bias = slopes[:, None, None] * d.clamp(max=0)
        bias = bias.masked_fill(d > 0, float("-inf"))
        a = torch.baddbmm(bias.repeat(b, 1, 1), q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=0.5).softmax(-1)
        return self.o((a @ v.flatten(0, 1)).view(b, 4, t, 4).transpose(1, 2).flatten(2)).square().mean()


@built("moe capacity", lambda g: (normal(g, 3, 12),))
class MoE(nn.Module):
    """capacity: positions by cumsum of one-hot, dispatch einsum, load-balancing loss"""

    def __init__(self):
        super().__init__()
        self.g = nn.Linear(12, 4, bias=False)
        self.w1 = nn.Parameter(torch.randn(4, 12, 16) * 0.3)
        self.w2 = nn.Parameter(torch.randn(4, 16, 12) * 0.3)

    def forward(self, x):
        x = x.reshape(-1, 12)
        T = x.shape[0]
        C = T * 2 // 4
        p = self.g(x).softmax(-1)
        top, ix = p.topk(2, -1)
        top = top / top.sum(-1, keepdim=True)
        oh = F.one_hot(ix, 4)  # T 2 4
        pos = (oh.transpose(0, 1).reshape(-1, 4).cumsum(0) - 1).reshape(2, T, 4).transpose(0, 1)
        keep = (pos < C) & (oh > 0)
        posoh = F.one_hot(pos.clamp(0, C - 1), C).float() * keep[..., None]
        comb = (posoh * top[..., None, None]).sum(1)  # T 4 C
        disp = (comb > 0).to(x.dtype)
        xe = torch.einsum("tec,td->ecd", disp, x)
        ye = torch.bmm(F.gelu(torch.bmm(xe, self.w1)), self.w2)
        y = torch.einsum("tec,ecd->td", comb, ye)
        aux = 4 * (p.mean(0) * oh.float().sum(1).mean(0)).sum()
        return (y - x).square().mean() + 0.01 * aux


@built(
    "cross attention bool mask",
    lambda g: (normal(g, 5, 12), normal(g, 6, 10), torch.arange(6).expand(SAMPLES, 6) < (numbers(g, 5) + 1)[:, None]),
)
class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(12, 12)
        self.kv = nn.Linear(10, 24)
        self.o = nn.Linear(12, 3)

    def forward(self, x, mem, mask):
        q = self.q(x).unflatten(-1, (3, 4)).transpose(1, 2)
        k, v = self.kv(mem).unflatten(-1, (2, 3, 4)).unbind(2)
        o = F.scaled_dot_product_attention(
            q, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask[:, None, None, :], scale=0.3
        )
        return self.o(o.transpose(1, 2).flatten(2)).square().mean()


@built("gqa enable", lambda g: (normal(g, 6, 16),))
class GQA(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16)
        self.k = nn.Linear(16, 8)
        self.v = nn.Linear(16, 8)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (4, 4)).transpose(1, 2)
        k = self.k(x).unflatten(-1, (2, 4)).transpose(1, 2)
        v = self.v(x).unflatten(-1, (2, 4)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).square().mean()


@built("vae eps given", lambda g: (normal(g, 12), normal(g, 4)))
class VAEeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(12, 8)
        self.d = nn.Linear(4, 12)

    def forward(self, x, eps):
        mu, lv = self.e(x).chunk(2, -1)
        z = torch.addcmul(mu, eps, (0.5 * lv).exp())
        return F.mse_loss(self.d(z), x, reduction="sum") / x.shape[0] - 0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()


@built("gan functional_call", lambda g: (normal(g, 6), normal(g, 12)))
class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 12))
        self.D = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, z, real):
        fake = self.G(z)
        d = F.softplus(self.D(fake.detach())).mean() + F.softplus(-self.D(real)).mean()
        frozen = {k: v.detach() for k, v in self.D.named_parameters()}
        g = F.softplus(-torch.func.functional_call(self.D, frozen, (fake,))).mean()
        return d + g


@built("gradient penalty", lambda g: (normal(g, 12),))
class GP(nn.Module):
    """gradient penalty: double backward"""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x):
        x = x.detach().requires_grad_()
        y = self.b(torch.tanh(self.a(x)))
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y.mean() + (g.norm(dim=1) - 1).square().mean()


@built("clip", lambda g: (normal(g, 12), normal(g, 10)))
class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)
        self.b = nn.Linear(10, 6)
        self.t = nn.Parameter(torch.tensor(2.0))

    def forward(self, x, y):
        u, v = F.normalize(self.a(x)), F.normalize(self.b(y))
        score = self.t.exp().clamp(max=100) * u @ v.T
        t = torch.arange(len(score), device=score.device)
        return (F.cross_entropy(score, t) + F.cross_entropy(score.T, t)) / 2


@built("supervised contrastive", lambda g: (normal(g, 12), numbers(g, 3)))
class SupCon(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)

    def forward(self, x, y):
        u = F.normalize(self.a(x))
        score = u @ u.T / 0.2
        score = score - score.max(1, keepdim=True).values.detach()
        eye = torch.eye(len(x), dtype=torch.bool)
        pos = (y[:, None] == y[None]) & ~eye
        lp = score - torch.log((score.exp() * (~eye)).sum(1, keepdim=True))
        return -((lp * pos).sum(1) / pos.sum(1).clamp(min=1)).mean()


@built("triplet", lambda g: (normal(g, 12), normal(g, 12), normal(g, 12)))
class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)

    def forward(self, x, p, n):
        return F.triplet_margin_loss(self.a(x), self.a(p), self.a(n), margin=0.5, swap=True) + F.margin_ranking_loss(
            self.a(x), self.a(p), torch.ones(SAMPLES, 6)
        )


@built("weighted ce smooth ignore", lambda g: (normal(g, 12), numbers(g, 5)))
class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(12, 5)
        self.register_buffer("w", torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]))
        self.ce = nn.CrossEntropyLoss(
            weight=torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]), label_smoothing=0.1, ignore_index=4
        )

    def forward(self, x, y):
        return self.ce(self.l(x), y)


@built("focal", lambda g: (normal(g, 12), numbers(g, 5)))
class Focal(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(12, 5)

    def forward(self, x, y):
        lp = F.log_softmax(self.l(x), -1)
        ce = F.nll_loss(lp, y, reduction="none")
        pt = torch.exp(-ce)
        return ((1 - pt) ** 2 * ce).sum() / SAMPLES


@built("dice over batch", lambda g: (normal(g, 3, 8, 8), torch.rand(SAMPLES, 1, 8, 8, generator=g).round()))
class Dice(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 1, 3, padding=1)

    def forward(self, x, y):
        p = self.c(x).sigmoid()
        return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


@built(
    "dict list tuple None inputs",
    lambda g: ({"x": normal(g, 12), "nested": [normal(g, 6), "name"]}, (None, normal(g, 5)), None),
)
class DictIn(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 5)
        self.b = nn.Linear(6, 5)

    def forward(self, batch, extra, opt=None):
        return F.mse_loss(self.a(batch["x"]) + self.b(batch["nested"][0]), extra[1])


@built("autocast nested off", lambda g: (normal(g, 12), numbers(g, 5)))
class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = mlp()
        self.b = nn.LayerNorm(12)
        self.c = nn.Linear(12, 5)

    def forward(self, x, y):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            h = self.a(x)
            with torch.autocast("cuda", enabled=False):
                h = self.b(h.float())
            o = self.c(h)
        return F.cross_entropy(o.float(), y)


@built("module hooks", lambda g: (normal(g, 12),))
class Hooks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.b = nn.Linear(12, 5)
        self.a.register_forward_pre_hook(lambda m, i: (i[0] * 2,))
        self.a.register_forward_hook(lambda m, i, o: o.tanh())
        self.b.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))
        self.b.weight.register_hook(lambda g: g.clamp(-0.1, 0.1))

    def forward(self, x):
        return self.b(self.a(x)).square().mean()


@built("weight+spectral norm", lambda g: (normal(g, 4, 9),))
class WN(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = weight_norm(nn.Conv1d(4, 6, 3))
        self.b = spectral_norm(nn.Conv1d(6, 4, 3))
        self.c = parametrizations.spectral_norm(nn.Linear(5, 5))

    def forward(self, x):
        return self.c(self.b(F.leaky_relu(self.a(x)))).square().mean()


@built("orthogonal", lambda g: (normal(g, 6),))
class Orth(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = parametrizations.orthogonal(nn.Linear(6, 6))
        self.b = parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley")

    def forward(self, x):
        return self.b(self.a(x)).pow(3).mean()


@built("moco queue", lambda g: (normal(g, 12), normal(g, 12)))
class EMA(nn.Module):
    """momentum encoder updated in forward (MoCo) with a queue and pointer"""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(12, 6)
        self.k = nn.Linear(12, 6).requires_grad_(False)
        self.k.load_state_dict(self.q.state_dict())
        self.register_buffer("queue", F.normalize(torch.randn(6, 16), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    def forward(self, x, y):
        q = F.normalize(self.q(x))
        with torch.no_grad():
            for a, b in zip(self.q.parameters(), self.k.parameters(), strict=False):
                b.mul_(0.99).add_(a, alpha=0.01)
            k = F.normalize(self.k(y))
        score = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], 1) / 0.2
        with torch.no_grad():
            self.queue[:, :8] = k.T
            self.ptr.add_(8).remainder_(16)
        return F.cross_entropy(score, torch.zeros(len(x), dtype=torch.long))


@built("welford buffers", lambda g: (normal(g, 12),))
class RunStd(nn.Module):
    """running normaliser with count (Welford), written by assignment"""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(12, 5)
        self.register_buffer("n", torch.tensor(1e-4, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(12))
        self.register_buffer("var", torch.ones(12))

    def forward(self, x):
        with torch.no_grad():
            bm, bv, bn = x.mean(0), x.var(0, unbiased=False), x.shape[0]
            d = bm - self.mean
            tot = self.n + bn
            m2 = self.var * self.n + bv * bn + d.square() * self.n * bn / tot
            self.mean = self.mean + (d * bn / tot).float()
            self.var = (m2 / tot).float()
            self.n = tot
        return self.l((x - self.mean) / self.var.sqrt()).square().mean()


@built("in place slices", lambda g: (normal(g, 12),))
class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.b = nn.Linear(12, 12)

    def forward(self, x):
        y = self.a(x)
        y[:, ::2] *= 2
        y[:, 0] = x[:, 1]
        z = torch.empty_like(y)
        z.copy_(y)
        z[1:].add_(y[:-1])
        z.clamp_(-1, 1)
        z.masked_fill_(x > 1, 0.3)
        return self.b(z).square().mean()


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, k):
        ctx.save_for_backward(x, w)
        ctx.k = k
        return x @ w * k, (x.detach() ** 2).sum()

    @staticmethod
    def backward(ctx, g, _):
        x, w = ctx.saved_tensors
        return g @ w.T * ctx.k, x.T @ g.clamp(-1, 1), None


@built("autograd function two out", lambda g: (normal(g, 12),))
class CF(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(12, 6) * 0.3)
        self.b = nn.Linear(6, 3)

    def forward(self, x):
        y, _ = Fn.apply(x, self.w, 2.0)
        return self.b(y).square().mean()


class Fn2(torch.autograd.Function):
    @staticmethod
    def forward(x, t):
        return (x > t).float()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.mark_non_differentiable()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / (1 + 10 * x.abs()) ** 2, None


@built("spiking surrogate", lambda g: (normal(g, 4, 12), numbers(g, 5)))
class Spike(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.b = nn.Linear(12, 5)

    def forward(self, x, y):
        v = torch.zeros(len(x), 12)
        o = 0
        for t in range(4):
            v = 0.9 * v + self.a(x[:, t])
            z = Fn2.apply(v - 1, 0.0)
            v = v - z.detach()
            o = o + self.b(z)
        return F.cross_entropy(o, y)


@built("vmap ensemble", lambda g: (normal(g, 12), normal(g, 5)))
class Vm(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 12, 5) * 0.3)
        self.b = nn.Parameter(torch.zeros(3, 5))

    def forward(self, x, y):
        out = torch.func.vmap(lambda w, b: torch.tanh(x @ w + b))(self.w, self.b)
        per = torch.func.vmap(lambda xi, yi: ((xi @ self.w[0] - yi) ** 2).sum())(x, y)
        return F.mse_loss(out.mean(0), y) + 0.1 * per.mean()


@built("pinn hessian", lambda g: (normal(g, 3),))
class FG(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x):
        def f(p):
            return self.b(torch.tanh(self.a(p))).squeeze(-1)

        df = torch.func.vmap(torch.func.grad(f))(x)
        lap = torch.func.vmap(lambda p: torch.func.hessian(f)(p).diagonal().sum())(x)
        return lap.square().mean() + (df.norm(dim=-1) - 1).square().mean()


@built("s4d", lambda g: (normal(g, 6, 8),))
class SSM(nn.Module):
    """S4D: complex diagonal state, kernel by vandermonde, fft conv"""

    def __init__(self):
        super().__init__()
        self.logA = nn.Parameter(torch.rand(6, 4))
        self.Ai = nn.Parameter(torch.randn(6, 4))
        self.C = nn.Parameter(torch.randn(6, 4, 2) * 0.3)
        self.D = nn.Parameter(torch.randn(6))
        self.dt = nn.Parameter(torch.rand(6) * -1)
        self.o = nn.Linear(6, 6)

    def forward(self, u):
        L = u.shape[-1]
        A = -self.logA.exp() + 1j * self.Ai
        dtA = A * self.dt.exp()[:, None]
        C = torch.view_as_complex(self.C) * (torch.exp(dtA) - 1) / A
        K = 2 * torch.einsum("hn,hnl->hl", C, torch.exp(dtA[..., None] * torch.arange(L))).real
        y = (
            torch.fft.irfft(torch.fft.rfft(u, n=2 * L) * torch.fft.rfft(K, n=2 * L), n=2 * L)[..., :L]
            + u * self.D[:, None]
        )
        return self.o(F.gelu(y).transpose(1, 2)).square().mean()


@built("mamba loop", lambda g: (normal(g, 5, 8),))
class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Linear(8, 16)
        self.c = nn.Conv1d(8, 8, 3, groups=8, padding=2)
        self.p = nn.Linear(8, 1 + 8)
        self.dt = nn.Linear(1, 8)
        self.A = nn.Parameter(torch.rand(8, 4))
        self.o = nn.Linear(8, 8)

    def forward(self, u):
        x, z = self.i(u).chunk(2, -1)
        x = F.silu(self.c(x.transpose(1, 2))[..., : u.shape[1]].transpose(1, 2))
        d, B, C = self.p(x).split([1, 4, 4], -1)
        d = F.softplus(self.dt(d))
        h = torch.zeros(len(u), 8, 4)
        ys = []
        dA = torch.exp(d[..., None] * -self.A.exp())
        dBx = d[..., None] * B[:, :, None] * x[..., None]
        for t in range(u.shape[1]):
            h = dA[:, t] * h + dBx[:, t]
            ys.append((h * C[:, t, None]).sum(-1))
        return self.o(torch.stack(ys, 1) * F.silu(z)).square().mean()


@built("gated linear attention segsum", lambda g: (normal(g, 5, 8),))
class RetNet(nn.Module):
    """chunked linear attention by cumsum of log decay and segsum"""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 8)
        self.v = nn.Linear(8, 8)
        self.g = nn.Linear(8, 2)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, 2, 4) for f in (self.q, self.k, self.v))
        a = F.logsigmoid(self.g(x)).cumsum(1)
        seg = a[:, :, None] - a[:, None]
        m = torch.ones(t, t, dtype=torch.bool).tril()
        dec = seg.masked_fill(~m[None, :, :, None], -torch.inf).exp()
        return torch.einsum("bihd,bjhd,bijh,bjhe->bihe", q, k, dec, v).square().mean()


@built("graph scatter index_put", lambda g: (normal(g, 12), numbers(g, SAMPLES, 2), normal(g, 8)))
class Scat(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 8)
        self.m = nn.Linear(8, 8)

    def forward(self, x, e, y):
        h = self.a(x)
        n = h.shape[0]
        src, dst = e[:, 0], e[:, 1]
        agg = torch.zeros(n, 8).index_add(0, dst, self.m(h[src]))
        mx = (
            torch.full((n, 8), -1e9)
            .scatter_reduce(0, dst[:, None].expand(-1, 8), h[src], "amax", include_self=True)
            .clamp(min=-5)
        )
        z = torch.zeros(n, 8)
        z = z.index_put((dst,), h[src] * 0.1, accumulate=True)
        return F.mse_loss(agg + mx + z, y)


@built("sparsemax cums", lambda g: (normal(g, 12),))
class Soft(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 8)

    def forward(self, x):
        h = self.a(x)
        v, _i = h.sort(dim=-1, descending=True, stable=True)
        c = v.cumsum(-1)
        k = torch.arange(1, 9)
        sup = (1 + k * v > c).sum(-1, keepdim=True)
        tau = (c.gather(-1, sup - 1) - 1) / sup
        p = (h - tau).clamp(min=0)
        return (
            (p * torch.arange(8.0)).square().mean()
            + h.cummax(-1).values.mean()
            + h.cumprod(-1).mean()
            + h.logcumsumexp(-1).mean()
            + h.kthvalue(3, -1).values.mean()
            + h.median(-1).values.mean()
            + h.quantile(0.3, dim=-1).mean()
        )


@built("einsum odd", lambda g: (normal(g, 3, 4),))
class Ein(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4, 5) * 0.3)
        self.u = nn.Parameter(torch.randn(5, 5) * 0.3)
        self.t = nn.Parameter(torch.randn(4) * 0.3)

    def forward(self, x):
        a = torch.einsum("...ij,kjl->...kil", x, self.w)
        b = torch.einsum("bkii->bk", torch.einsum("bkil,lm->bkim", a, self.u)[..., :, :3])
        c = torch.einsum("bij,j->bi", x, self.t)
        d = torch.einsum(x, [0, 1, 2], self.t, [2], [1, 0])
        e = torch.tensordot(x, self.w, dims=([2], [1]))
        f = torch.kron(self.u[:2, :2], self.u[:2, :2]).sum()
        return a.square().mean() + b.mean() + c.mean() + d.square().mean() + e.mean() + f


@built("fno complex weights", lambda g: (normal(g, 4, 8, 8),))
class FNO(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4, 3, 3, dtype=torch.cfloat) * 0.3)
        self.c = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        f = torch.fft.rfft2(x, norm="ortho")
        o = torch.zeros_like(f)
        o[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", f[:, :, :3, :3], self.w)
        return F.gelu(torch.fft.irfft2(o, s=x.shape[-2:], norm="ortho") + self.c(x)).square().mean()


@built("shared modules", lambda g: (normal(g, 12),))
class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        score = nn.Linear(12, 12)
        self.a = score
        self.b = nn.Sequential(score, nn.ReLU(), nn.Linear(12, 12))
        self.c = nn.ModuleDict({"x": self.b[2], "y": nn.Identity()})
        self.d = nn.Linear(12, 12)
        self.d.weight = score.weight
        self.d.bias = nn.Parameter(torch.zeros(12))

    def forward(self, x):
        return self.d(self.c["x"](self.b(self.a(x)))).square().mean()


@built("deep supervision", lambda g: (normal(g, 12), numbers(g, 4)))
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))
        self.h = nn.ModuleList(nn.Linear(12, 4) for _ in range(3))

    def forward(self, x, y):
        ls = []
        for b, h in zip(self.b, self.h, strict=False):
            x = F.relu(b(x))
            ls.append(F.cross_entropy(h(x), y))
        w = torch.tensor([0.2, 0.3, 0.5])
        return (torch.stack(ls) * w).sum()


@built("uncertainty weights", lambda g: (normal(g, 12), numbers(g, 4), normal(g, 4)))
class ListLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 4)
        self.b = nn.Linear(12, 4)
        self.ls = nn.Parameter(torch.zeros(2))

    def forward(self, x, y, z):
        score = [F.cross_entropy(self.a(x), y), F.mse_loss(self.b(x), z)]
        return sum(torch.exp(-self.ls[i]) * score[i] + self.ls[i] for i in range(2))


@built("spatial transformer", lambda g: (normal(g, 3, 8, 8),))
class Grid(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = nn.Linear(3 * 64, 6)
        nn.init.zeros_(self.loc.weight)
        self.loc.bias.data = torch.tensor([1.0, 0, 0.1, 0, 1, -0.1])
        self.c = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        t = self.loc(x.flatten(1)).view(-1, 2, 3)
        return (
            self.c(F.grid_sample(x, F.affine_grid(t, x.shape, align_corners=False), align_corners=False))
            .square()
            .mean()
        )


@built("swin", lambda g: (normal(g, 4, 4, 8),))
class Roll(nn.Module):
    """swin shifted windows"""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.t = nn.Parameter(torch.randn(9, 2) * 0.1)
        r = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
        d = (r[:, :, None] - r[:, None]).permute(1, 2, 0) + 1
        self.register_buffer("ix", d[..., 0] * 3 + d[..., 1])

    def forward(self, x):
        b, h, w, c = x.shape
        x = torch.roll(x, (-1, -1), (1, 2))
        x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        q, k, v = self.qkv(x).view(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        o = (q @ k.transpose(-1, -2) / 2 + self.t[self.ix.view(-1)].view(4, 4, 2).permute(2, 0, 1)).softmax(-1) @ v
        o = o.transpose(1, 2).reshape(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(o, (1, 1), (1, 2)).square().mean()


@built("mae", lambda g: (normal(g, 6, 12), torch.rand(SAMPLES, 6, generator=g)))
class MAE(nn.Module):
    """random masking from given noise: argsort, gather, scatter back with mask token"""

    def __init__(self):
        super().__init__()
        self.e = nn.Linear(12, 8)
        self.m = nn.Parameter(torch.zeros(1, 1, 8))
        self.pos = nn.Parameter(torch.randn(1, 6, 8) * 0.1)
        self.d = nn.Linear(8, 12)
        self.cls = nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, x, noise):
        b, t, _ = x.shape
        h = self.e(x) + self.pos
        sh = noise.argsort(1)
        rs = sh.argsort(1)
        keep = sh[:, :3]
        v = torch.gather(h, 1, keep[..., None].expand(-1, -1, 8))
        v = torch.cat([self.cls.expand(b, -1, -1), v], 1).tanh()
        full = torch.cat([v[:, 1:], self.m.expand(b, 3, -1)], 1).gather(1, rs[..., None].repeat(1, 1, 8))
        mask = torch.ones(b, t)
        mask[:, :3] = 0
        mask = mask.gather(1, rs)
        score = (self.d(full) - x).square().mean(-1)
        return (score * mask).sum() / mask.sum()


@built("masked lm mean", lambda g: (numbers(g, 20, 6), (torch.rand(SAMPLES, 6, generator=g) > 0.3).float()))
class MeanOverMask(nn.Module):
    """masked mean: sum/count over batch"""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.o = nn.Linear(8, 20)

    def forward(self, i, m):
        score = F.cross_entropy(self.o(self.e(i[:, :-1])).transpose(1, 2), i[:, 1:], reduction="none")
        return (score * m[:, 1:]).sum() / m.sum().clamp(min=1)


@built("diffusion", lambda g: (normal(g, 12), numbers(g, 50), normal(g, 12)))
class Diff(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = mlp(16, 24, 12)
        self.register_buffer("ab", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0))

    def forward(self, x, t, e):
        a = self.ab[t][:, None]
        xt = a.sqrt() * x + (1 - a).sqrt() * e
        f = torch.exp(-math.log(1e4) * torch.arange(2) / 2)
        te = torch.cat([(t[:, None] * f).sin(), (t[:, None] * f).cos()], -1)
        w = torch.minimum(a / (1 - a), torch.tensor(5.0))
        return (w * (self.n(torch.cat([xt, te], -1)) - e).square()).mean()


@built("deq", lambda g: (normal(g, 12),))
class DEQ(nn.Module):
    """fixed point in no_grad then one step with grad"""

    def __init__(self):
        super().__init__()
        self.w = nn.Linear(12, 12)
        self.u = nn.Linear(12, 12)

    def forward(self, x):
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(5):
                z = torch.tanh(self.w(z) * 0.5 + self.u(x))
        return torch.tanh(self.w(z) * 0.5 + self.u(x)).square().mean()


@built("cholesky svd", lambda g: (normal(g, 12),))
class Lstsq(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)

    def forward(self, x):
        h = self.a(x)
        c = h.T @ h / len(h) + torch.eye(12)
        L = torch.linalg.cholesky(c)
        ld = 2 * L.diagonal().log().sum()
        q = torch.cholesky_solve(h.T, L)
        return ld + q.square().mean() + torch.linalg.svdvals(h).sum() * 0.01 + torch.logdet(c)


@built("real nvp slogdet", lambda g: (normal(g, 12),))
class Flow(nn.Module):
    """RealNVP + affine slogdet"""

    def __init__(self):
        super().__init__()
        self.n = nn.ModuleList(mlp(6, 16, 12) for _ in range(3))
        self.W = nn.Parameter(torch.linalg.qr(torch.randn(12, 12))[0])

    def forward(self, x):
        x = x @ self.W
        ld = torch.linalg.slogdet(self.W)[1]
        for k, n in enumerate(self.n):
            a, b = x.chunk(2, 1) if k % 2 else x.flip(1).chunk(2, 1)
            t, sc = n(a).chunk(2, 1)
            sc = torch.tanh(sc)
            b = b * sc.exp() + t
            x = torch.cat([a, b], 1)
            ld = ld + sc.sum(1)
        return (0.5 * x.square().sum(1) - ld).mean()


@built(
    "crf",
    lambda g: (normal(g, 5, 12), numbers(g, 5, 5), torch.arange(5).expand(SAMPLES, 5) < (numbers(g, 4) + 1)[:, None]),
)
class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(12, 5)
        self.T = nn.Parameter(torch.randn(5, 5) * 0.1)

    def forward(self, x, y, m):
        e = self.e(x)
        a = e[:, 0]
        for t in range(1, x.shape[1]):
            n = (a[:, :, None] + self.T + e[:, t, None]).logsumexp(1)
            a = torch.where(m[:, t, None], n, a)
        sc = e.gather(2, y[..., None]).squeeze(2)
        tr = self.T[y[:, :-1], y[:, 1:]]
        return (a.logsumexp(1) - (sc * m).sum(1) - (tr * m[:, 1:]).sum(1)).mean()


@built("det solve layouts", lambda g: (normal(g, 12),))
class Det(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter((torch.randn(6, 6) * 0.2 + 2 * torch.eye(6)).t())
        self.q = nn.Parameter(torch.randn(6, 6) * 0.2 + 2 * torch.eye(6))
        self.b = nn.Linear(12, 6)

    def forward(self, x):
        h = self.b(x)
        return (
            torch.linalg.solve(self.p, h.T).square().mean()
            + torch.linalg.det(self.q.T) * 0.1
            + torch.linalg.solve(self.q, h.T).mean()
            + torch.linalg.det(self.p) * 0.01
            + torch.linalg.inv(self.p).sum()
            + torch.linalg.solve(self.q.t(), h.T).abs().mean()
        )


@built("as_strided", lambda g: (normal(g, 12),))
class AsS(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.w = nn.Parameter(torch.randn(12, 12).t())
        self.p = nn.Parameter(torch.randn(12, 12) * 0.2)

    def forward(self, x):
        h = self.a(x)
        y = h.as_strided((8, 4, 6), (12, 2, 1))
        z = self.p.as_strided((3, 12), (24, 1))
        return y.square().mean() + (h @ z.T).square().mean() + (h @ self.w).square().mean()


@built("distributions", lambda g: (normal(g, 12), numbers(g, 6)))
class Dist(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 8)
        self.b = nn.Linear(12, 6)

    def forward(self, x, y):
        from torch.distributions import Categorical, Independent, Normal

        m, score = self.a(x).chunk(2, -1)
        d = Independent(Normal(m, F.softplus(score) + 0.1), 1)
        Independent(Normal(torch.zeros(4), torch.ones(4)), 1)
        c = Categorical(logits=self.b(x))
        return (
            -d.log_prob(torch.ones(8, 4)).mean()
            - c.log_prob(y).mean()
            - 0.1 * c.entropy().mean()
            + torch.distributions.kl_divergence(Normal(m, F.softplus(score) + 0.1), Normal(0.0, 1.0)).mean()
        )


@built("ppo", lambda g: (normal(g, 12), numbers(g, 6), normal(g), normal(g), normal(g)))
class PPO(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)
        self.v = nn.Linear(12, 1)

    def forward(self, x, act, old, adv, ret):
        lp = self.a(x).log_softmax(-1).gather(1, act[:, None])[:, 0]
        r = (lp - old).exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        return -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean() + 0.5 * F.mse_loss(self.v(x)[:, 0], ret)


@built("dpo", lambda g: (numbers(g, 20, 5), numbers(g, 20, 5)))
class DPO(nn.Module):
    """policy + frozen reference, batch halves chosen / rejected"""

    def __init__(self):
        super().__init__()
        self.p = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
        self.r = copy.deepcopy(self.p).requires_grad_(False)
        self.p[1].weight.data.mul_(1.1)

    def forward(self, c, r):
        def lp(m, i):
            return m(i[:, :-1]).log_softmax(-1).gather(2, i[:, 1:, None]).squeeze(2).sum(1)

        i = torch.cat([c, r])
        with torch.no_grad():
            rl = lp(self.r, i)
        d = lp(self.p, i) - rl
        a, b = d.chunk(2)
        return -F.logsigmoid(0.5 * (a - b)).mean()


@built("byol ema params .data", lambda g: (normal(g, 12), normal(g, 12)))
class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.o = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
        self.h = nn.Linear(6, 6)
        self.t = copy.deepcopy(self.o).requires_grad_(False)

    def forward(self, x, y):
        with torch.no_grad():
            for a, b in zip(self.o.parameters(), self.t.parameters(), strict=False):
                b.data.lerp_(a.data, 0.01)
            k = self.t(y)
        return 2 - 2 * F.cosine_similarity(self.h(self.o(x)), k.detach(), dim=-1).mean()


@built("barlow twins", lambda g: (normal(g, 12), normal(g, 12)))
class Barlow(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)
        self.bn = nn.BatchNorm1d(6, affine=False)

    def forward(self, x, y):
        c = self.bn(self.a(x)).T @ self.bn(self.a(y)) / len(x)
        on = (torch.diagonal(c) - 1).pow(2).sum()
        off = c.flatten()[:-1].view(5, 7)[:, 1:].flatten().pow(2).sum()
        return on + 0.005 * off


@built("nt-xent by constant mask", lambda g: (normal(g, 12), normal(g, 12)))
class NTX(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)

    def forward(self, x, y):
        z = F.normalize(torch.cat([self.a(x), self.a(y)]), dim=1)
        score = z @ z.T / 0.5
        n = len(z)
        mask = torch.eye(n, dtype=torch.bool)
        score = score[~mask].view(n, -1)
        pos = torch.cat([torch.arange(n // 2, n) - 1, torch.arange(n // 2)])
        return F.cross_entropy(score, pos)


@built("pools", lambda g: (normal(g, 3, 8, 8),))
class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3)
        self.l = nn.Linear(4 * 4 + 4 * 9 + 4, 5)

    def forward(self, x):
        h = self.c(x)
        a = F.adaptive_max_pool2d(h, 2).flatten(1)
        b = F.avg_pool2d(h, 2, ceil_mode=True, count_include_pad=False, padding=0).flatten(1)
        p = F.lp_pool2d(h.abs() + 0.1, 2, 6).flatten(1)
        return self.l(torch.cat([a, b, p], 1)).square().mean()


@built("max unpool", lambda g: (normal(g, 3, 8, 8),))
class Unpool(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3, padding=1)
        self.d = nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, x):
        h, i = F.max_pool2d(self.c(x), 2, return_indices=True)
        return F.mse_loss(self.d(F.max_unpool2d(h, i, 2)), x)


@built("stft istft", lambda g: (normal(g, 64),))
class STFT(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(1, 1, 5, padding=2)
        self.register_buffer("w", torch.hann_window(16))

    def forward(self, x):
        y = self.c(x[:, None])[:, 0]

        def f(z):
            return torch.stft(z, 16, 4, window=self.w, return_complex=True).abs()

        return (
            F.l1_loss(f(y), f(x))
            + torch.istft(torch.stft(y, 16, 4, window=self.w, return_complex=True), 16, 4, window=self.w)
            .square()
            .mean()
        )


@built("hash grid", lambda g: (torch.rand(SAMPLES, 3, generator=g), normal(g, 3)))
class HashE(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Parameter(torch.randn(64, 2) * 0.1)
        self.m = mlp(2, 8, 3)
        self.register_buffer("pr", torch.tensor([1, 2654435761, 805459861]))

    def forward(self, x, c):
        i = (x * 16).long()
        h = (i[:, 0] * self.pr[0]) ^ (i[:, 1] * self.pr[1]) ^ (i[:, 2] * self.pr[2])
        return F.mse_loss(self.m(self.t[h % 64]), c)


@built("slot attention", lambda g: (normal(g, 6, 8),))
class Slot(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8, bias=False)
        self.k = nn.Linear(8, 8, bias=False)
        self.v = nn.Linear(8, 8, bias=False)
        self.g = nn.GRUCell(8, 8)
        self.mu = nn.Parameter(torch.randn(1, 3, 8))
        self.n = nn.LayerNorm(8)

    def forward(self, x):
        k, v = self.k(x), self.v(x)
        z = self.mu.expand(len(x), -1, -1)
        for _ in range(3):
            p = z
            a = torch.softmax(k @ self.q(self.n(z)).transpose(1, 2) / 8**0.5, -1) + 1e-8
            a = a / a.sum(1, keepdim=True)
            z = self.g((a.transpose(1, 2) @ v).flatten(0, 1), p.flatten(0, 1)).view(len(x), 3, 8)
        return z.square().mean()


@built("neural turing machine", lambda g: (normal(g, 4, 8),))
class NTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.LSTMCell(12, 8)
        self.e = nn.Linear(8, 4)
        self.o = nn.Linear(8, 3)
        self.register_buffer("h0", torch.zeros(8))

    def forward(self, x):
        h = self.h0.expand(len(x), -1).contiguous()
        c = torch.zeros_like(h)
        M = torch.zeros(len(x), 5, 4)
        ys = []
        for t in range(x.shape[1]):
            k = self.e(h)
            w = F.cosine_similarity(M + 0.01, k[:, None], dim=-1).softmax(-1)
            r = torch.einsum("bn,bnm->bm", w, M)
            h, c = self.c(torch.cat([x[:, t], r], -1), (h, c))
            M = M * (1 - 0.1 * w[..., None]) + w[..., None] * self.e(h)[:, None]
            ys.append(self.o(h))
        return torch.stack(ys).square().mean()


@built(
    "encoder with mask input",
    lambda g: (normal(g, 5, 12), nn.Transformer.generate_square_subsequent_mask(5), torch.zeros(SAMPLES, 5)),
)
class TTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(12, 3, 24, 0.0, batch_first=True), 2, enable_nested_tensor=False
        )

    def forward(self, x, m, pad):
        return self.e(x, mask=m, src_key_padding_mask=pad).square().mean()


@built("empty parameter", lambda g: (normal(g, 12),))
class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)
        self.e = nn.Parameter(torch.zeros(0, 6))

    def forward(self, x):
        return torch.cat([self.a(x), self.e]).square().mean()


@built("unregistered module", lambda g: (normal(g, 12),))
class Closure(nn.Module):
    """module reached through a closure and a list, not registered"""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.others = [nn.Linear(12, 6)]
        self.f = lambda y: self.a(y)

    def forward(self, x):
        return self.others[0](self.f(x)).square().mean()


@built("gradient normalised by hooks", lambda g: (normal(g, 12),))
class HookClamp(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(12, 12) * 0.3)
        self.w.register_hook(lambda g: g / (g.norm() + 1e-6))
        self.v = nn.Parameter(torch.randn(12))
        self.v.register_hook(torch.sign)

    def forward(self, x):
        return ((torch.tanh(x @ self.w) @ self.w) * self.v).square().mean()


@built("half+double mix bool input", lambda g: (normal(g, 12), normal(g, 12) > 0))
class Dtype(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12).half()
        self.b = nn.Linear(12, 12).double()
        self.c = nn.Linear(12, 4)

    def forward(self, x, m):
        return self.c((self.a(x.half()).double() + self.b(x.double())).float() * m).square().mean()


@built("own generator", lambda g: (normal(g, 12),))
class DropSeed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)

    def forward(self, x):
        g = torch.Generator().manual_seed(5)
        return (self.a(x) * (torch.rand(12, generator=g) > 0.5)).square().mean()


class FnU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, t):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g, (g * x).sum(0)


@built("weight without forward reader", lambda g: (normal(g, 12),))
class Unread(nn.Module):
    """a weight that only the backward pass of a function knows"""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)
        self.t = nn.Parameter(torch.zeros(6))
        self.b = nn.Linear(6, 3)

    def forward(self, x):
        return self.b(FnU.apply(self.a(x), self.t)).square().mean()


@built("torch.cond", lambda g: (normal(g, 12),))
class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 6)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: self.a(y).square().mean(), lambda y: self.a(y).abs().mean(), (x,))


@built("embedding max_norm", lambda g: (numbers(g, 30, 5),))
class DSNT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 8, max_norm=1.0)
        self.f = nn.Embedding(30, 8, scale_grad_by_freq=True, padding_idx=0)
        self.o = nn.Linear(8, 3)

    def forward(self, i):
        return self.o(self.e(i) + self.f(i)).square().mean()


@dataclass
class Bt:
    x: torch.Tensor
    y: torch.Tensor


@built("dataclass in", lambda g: (Bt(normal(g, 12), normal(g, 5)),))
class DCin(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 5)

    def forward(self, b):
        return F.mse_loss(self.a(b.x), b.y)


@built("post accumulate hook", lambda g: (normal(g, 12),))
class PAG(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.a.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))

    def forward(self, x):
        return self.a(x).square().mean()


@built("moe loop where", lambda g: (normal(g, 12),))
class MoELoop(nn.Module):
    """index_add by nonzero, mixtral style"""

    def __init__(self):
        super().__init__()
        self.g = nn.Linear(12, 4)
        self.e = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))

    def forward(self, x):
        w, ix = self.g(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        m = F.one_hot(ix, 4).permute(2, 1, 0)
        for k, e in enumerate(self.e):
            j, t = torch.where(m[k])
            out.index_add_(0, t, e(x[t]) * w[t, j, None])
        return out.square().mean()


REFUSED.update(
    {
        "own generator": "Generator",
        "weight without forward reader": "nothing in the forward pass reads it",
        "torch.cond": "Compute both branches",
        "embedding max_norm": "writes a weight",
        "dataclass in": "holds tensors",
        "post accumulate hook": "hook",
        "moe loop where": "with one argument",
    }
)
