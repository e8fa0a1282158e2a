"""Modules as their users write them, from papers and tutorials.

They are entries of `ZOO`, as those of `modules` are; `built` enters one, from its parts and its forward pass, or as a
class where its parts need each other.

It has more than 500 lines because it is a list.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm

from tests.zoo.modules import REFUSED, SAMPLES, ZOO, Body, Kind, linear, weight


def built(name: str, draw: Callable[[torch.Generator], Any], **makers: Callable[[], Any]) -> Callable[[Any], Any]:
    """Decorator: enter the forward pass of a module that returns its loss, which takes the module with the parts that
    `makers` make; or, without parts, a class of such modules. `draw` makes the inputs of a microbatch."""

    def enter(made: Any) -> Any:
        def make() -> Kind:
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(3)
                model = Body(made, {part: maker() for part, maker in makers.items()}) if makers else made()
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


@built(
    "bidirectional lstm proj",
    lambda g: (numbers(g, 20, 7), numbers(g, 5)),
    e=lambda: nn.Embedding(20, 8),
    l=lambda: nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True, proj_size=4),
    o=linear(8, 5),
)
def _(net, i, y):
    h, (_a, _c) = net.l(net.e(i))
    return F.cross_entropy(net.o(h.mean(1)), y)


@built(
    "gru last of length",
    lambda g: (normal(g, 7, 8), numbers(g, 7) + 1, numbers(g, 5)),
    l=lambda: nn.GRU(8, 6, batch_first=True, num_layers=2),
    o=linear(6, 5),
)
def _(net, x, n, y):
    h, _ = net.l(x)
    last = h.gather(1, (n - 1)[:, None, None].expand(-1, 1, h.shape[-1])).squeeze(1)
    return F.cross_entropy(net.o(last), y)


@built(
    "mha kdim vdim pad weights",
    lambda g: (
        normal(g, 5, 12),
        normal(g, 6, 10),
        normal(g, 6, 14),
        torch.arange(6).expand(SAMPLES, 6) >= (numbers(g, 5) + 1)[:, None],
    ),
    q=linear(12, 12),
    m=lambda: nn.MultiheadAttention(12, 3, kdim=10, vdim=14, batch_first=True, add_bias_kv=True, add_zero_attn=True),
)
def _(net, x, k, v, pad):
    o, w = net.m(net.q(x), k, v, key_padding_mask=pad, average_attn_weights=False)
    return o.pow(2).mean() + w.pow(2).mean()


@built("mha causal seq first", lambda g: (normal(g, 5, 12),), m=lambda: nn.MultiheadAttention(12, 3), o=linear(12, 4))
def _(net, x):
    x = x.transpose(0, 1)
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[0])
    o, _ = net.m(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    return net.o(o).pow(2).mean()


@built(
    "nn.Transformer",
    lambda g: (numbers(g, 11, 6), numbers(g, 11, 5)),
    t=lambda: nn.Transformer(12, 3, 2, 2, 24, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"),
    e=lambda: nn.Embedding(11, 12),
    o=linear(12, 11),
)
def _(net, src, tgt):
    m = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1] - 1)
    h = net.t(
        net.e(src),
        net.e(tgt[:, :-1]),
        tgt_mask=m,
        src_key_padding_mask=(src == 0).clone().index_fill(1, torch.tensor([0]), False),
    )
    return F.cross_entropy(net.o(h).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0)


@built(
    "conv transpose groups output padding",
    lambda g: (normal(g, 4, 8, 8),),
    n=lambda: nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2, dilation=1),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=1),
    ),
)
def _(net, x):
    return F.l1_loss(net.n(x), x)


@built(
    "embedding bags mean max padding",
    lambda g: (numbers(g, 30, 5), normal(g, 5), torch.rand(SAMPLES, generator=g)),
    a=lambda: nn.EmbeddingBag(30, 12, mode="mean", padding_idx=0),
    b=lambda: nn.EmbeddingBag(30, 12, mode="max"),
    o=linear(24, 1),
)
def _(net, i, w, y):
    return F.binary_cross_entropy_with_logits(
        net.o(torch.cat([net.a(i), net.b(i)], 1)).squeeze(1), y, pos_weight=torch.tensor(2.0)
    )


@built(
    "embedding bag weights",
    lambda g: (numbers(g, 30, 5), normal(g, 5)),
    a=lambda: nn.EmbeddingBag(30, 12, mode="sum"),
    o=linear(12, 1),
)
def _(net, i, w):
    return net.o(net.a(i, per_sample_weights=w)).pow(2).mean()


@built("alibi baddbmm", lambda g: (normal(g, 6, 16),), qkv=linear(16, 48), o=linear(16, 16))
def _(net, x):
    b, t, _ = x.shape
    q, k, v = [y.view(b, t, 4, 4).transpose(1, 2) for y in net.qkv(x).split(16, -1)]
    slopes = torch.pow(2.0, -torch.arange(1, 5) * 2.0)
    d = torch.arange(t)[None] - torch.arange(t)[:, None]
    bias = slopes[:, None, None] * d.clamp(max=0)
    bias = bias.masked_fill(d > 0, float("-inf"))
    a = torch.baddbmm(bias.repeat(b, 1, 1), q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=0.5).softmax(-1)
    return net.o((a @ v.flatten(0, 1)).view(b, 4, t, 4).transpose(1, 2).flatten(2)).square().mean()


@built(
    "moe capacity",
    lambda g: (normal(g, 3, 12),),
    g=linear(12, 4, bias=False),
    w1=weight(4, 12, 16),
    w2=weight(4, 16, 12),
)
def _(net, x):
    """capacity: positions by cumsum of one-hot, dispatch einsum, load-balancing loss"""

    x = x.reshape(-1, 12)
    T = x.shape[0]
    C = T * 2 // 4
    p = net.g(x).softmax(-1)
    top, ix = p.topk(2, -1)
    top = top / top.sum(-1, keepdim=True)
    oh = F.one_hot(ix, 4)  # T 2 4
    pos = (oh.transpose(0, 1).reshape(-1, 4).cumsum(0) - 1).reshape(2, T, 4).transpose(0, 1)
    keep = (pos < C) & (oh > 0)
    posoh = F.one_hot(pos.clamp(0, C - 1), C).float() * keep[..., None]
    comb = (posoh * top[..., None, None]).sum(1)  # T 4 C
    disp = (comb > 0).to(x.dtype)
    xe = torch.einsum("tec,td->ecd", disp, x)
    ye = torch.bmm(F.gelu(torch.bmm(xe, net.w1)), net.w2)
    y = torch.einsum("tec,ecd->td", comb, ye)
    aux = 4 * (p.mean(0) * oh.float().sum(1).mean(0)).sum()
    return (y - x).square().mean() + 0.01 * aux


@built(
    "cross attention bool mask",
    lambda g: (normal(g, 5, 12), normal(g, 6, 10), torch.arange(6).expand(SAMPLES, 6) < (numbers(g, 5) + 1)[:, None]),
    q=linear(12, 12),
    kv=linear(10, 24),
    o=linear(12, 3),
)
def _(net, x, mem, mask):
    q = net.q(x).unflatten(-1, (3, 4)).transpose(1, 2)
    k, v = net.kv(mem).unflatten(-1, (2, 3, 4)).unbind(2)
    o = F.scaled_dot_product_attention(
        q, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask[:, None, None, :], scale=0.3
    )
    return net.o(o.transpose(1, 2).flatten(2)).square().mean()


@built("gqa enable", lambda g: (normal(g, 6, 16),), q=linear(16, 16), k=linear(16, 8), v=linear(16, 8))
def _(net, x):
    q = net.q(x).unflatten(-1, (4, 4)).transpose(1, 2)
    k = net.k(x).unflatten(-1, (2, 4)).transpose(1, 2)
    v = net.v(x).unflatten(-1, (2, 4)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).square().mean()


@built("vae eps given", lambda g: (normal(g, 12), normal(g, 4)), e=linear(12, 8), d=linear(4, 12))
def _(net, x, eps):
    mu, lv = net.e(x).chunk(2, -1)
    z = torch.addcmul(mu, eps, (0.5 * lv).exp())
    return F.mse_loss(net.d(z), x, reduction="sum") / x.shape[0] - 0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()


@built(
    "gan functional_call",
    lambda g: (normal(g, 6), normal(g, 12)),
    G=lambda: nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 12)),
    D=lambda: nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)),
)
def _(net, z, real):
    fake = net.G(z)
    d = F.softplus(net.D(fake.detach())).mean() + F.softplus(-net.D(real)).mean()
    frozen = {k: v.detach() for k, v in net.D.named_parameters()}
    g = F.softplus(-torch.func.functional_call(net.D, frozen, (fake,))).mean()
    return d + g


@built("gradient penalty", lambda g: (normal(g, 12),), a=linear(12, 16), b=linear(16, 1))
def _(net, x):
    """gradient penalty: double backward"""

    x = x.detach().requires_grad_()
    y = net.b(torch.tanh(net.a(x)))
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y.mean() + (g.norm(dim=1) - 1).square().mean()


@built(
    "clip",
    lambda g: (normal(g, 12), normal(g, 10)),
    a=linear(12, 6),
    b=linear(10, 6),
    t=lambda: nn.Parameter(torch.tensor(2.0)),
)
def _(net, x, y):
    u, v = F.normalize(net.a(x)), F.normalize(net.b(y))
    score = net.t.exp().clamp(max=100) * u @ v.T
    t = torch.arange(len(score), device=score.device)
    return (F.cross_entropy(score, t) + F.cross_entropy(score.T, t)) / 2


@built("supervised contrastive", lambda g: (normal(g, 12), numbers(g, 3)), a=linear(12, 6))
def _(net, x, y):
    u = F.normalize(net.a(x))
    score = u @ u.T / 0.2
    score = score - score.max(1, keepdim=True).values.detach()
    eye = torch.eye(len(x), dtype=torch.bool)
    pos = (y[:, None] == y[None]) & ~eye
    lp = score - torch.log((score.exp() * (~eye)).sum(1, keepdim=True))
    return -((lp * pos).sum(1) / pos.sum(1).clamp(min=1)).mean()


@built("triplet", lambda g: (normal(g, 12), normal(g, 12), normal(g, 12)), a=linear(12, 6))
def _(net, x, p, n):
    return F.triplet_margin_loss(net.a(x), net.a(p), net.a(n), margin=0.5, swap=True) + F.margin_ranking_loss(
        net.a(x), net.a(p), torch.ones(SAMPLES, 6)
    )


@built(
    "weighted ce smooth ignore",
    lambda g: (normal(g, 12), numbers(g, 5)),
    l=linear(12, 5),
    w=lambda: torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]),
    ce=lambda: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]), label_smoothing=0.1, ignore_index=4),
)
def _(net, x, y):
    return net.ce(net.l(x), y)


@built("focal", lambda g: (normal(g, 12), numbers(g, 5)), l=linear(12, 5))
def _(net, x, y):
    lp = F.log_softmax(net.l(x), -1)
    ce = F.nll_loss(lp, y, reduction="none")
    pt = torch.exp(-ce)
    return ((1 - pt) ** 2 * ce).sum() / SAMPLES


@built(
    "dice over batch",
    lambda g: (normal(g, 3, 8, 8), torch.rand(SAMPLES, 1, 8, 8, generator=g).round()),
    c=lambda: nn.Conv2d(3, 1, 3, padding=1),
)
def _(net, x, y):
    p = net.c(x).sigmoid()
    return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


@built(
    "dict list tuple None inputs",
    lambda g: ({"x": normal(g, 12), "nested": [normal(g, 6), "name"]}, (None, normal(g, 5)), None),
    a=linear(12, 5),
    b=linear(6, 5),
)
def _(net, batch, extra, opt=None):
    return F.mse_loss(net.a(batch["x"]) + net.b(batch["nested"][0]), extra[1])


@built(
    "autocast nested off",
    lambda g: (normal(g, 12), numbers(g, 5)),
    a=lambda: mlp(),
    b=lambda: nn.LayerNorm(12),
    c=linear(12, 5),
)
def _(net, x, y):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h = net.a(x)
        with torch.autocast("cuda", enabled=False):
            h = net.b(h.float())
        o = net.c(h)
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


@built(
    "weight+spectral norm",
    lambda g: (normal(g, 4, 9),),
    a=lambda: weight_norm(nn.Conv1d(4, 6, 3)),
    b=lambda: spectral_norm(nn.Conv1d(6, 4, 3)),
    c=lambda: parametrizations.spectral_norm(nn.Linear(5, 5)),
)
def _(net, x):
    return net.c(net.b(F.leaky_relu(net.a(x)))).square().mean()


@built(
    "orthogonal",
    lambda g: (normal(g, 6),),
    a=lambda: parametrizations.orthogonal(nn.Linear(6, 6)),
    b=lambda: parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley"),
)
def _(net, x):
    return net.b(net.a(x)).pow(3).mean()


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


@built(
    "welford buffers",
    lambda g: (normal(g, 12),),
    l=linear(12, 5),
    n=lambda: torch.tensor(1e-4, dtype=torch.float64),
    mean=lambda: torch.zeros(12),
    var=lambda: torch.ones(12),
)
def _(net, x):
    """running normaliser with count (Welford), written by assignment"""

    with torch.no_grad():
        bm, bv, bn = x.mean(0), x.var(0, unbiased=False), x.shape[0]
        d = bm - net.mean
        tot = net.n + bn
        m2 = net.var * net.n + bv * bn + d.square() * net.n * bn / tot
        net.mean = net.mean + (d * bn / tot).float()
        net.var = (m2 / tot).float()
        net.n = tot
    return net.l((x - net.mean) / net.var.sqrt()).square().mean()


@built("in place slices", lambda g: (normal(g, 12),), a=linear(12, 12), b=linear(12, 12))
def _(net, x):
    y = net.a(x)
    y[:, ::2] *= 2
    y[:, 0] = x[:, 1]
    z = torch.empty_like(y)
    z.copy_(y)
    z[1:].add_(y[:-1])
    z.clamp_(-1, 1)
    z.masked_fill_(x > 1, 0.3)
    return net.b(z).square().mean()


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


@built("autograd function two out", lambda g: (normal(g, 12),), w=weight(12, 6), b=linear(6, 3))
def _(net, x):
    y, _ = Fn.apply(x, net.w, 2.0)
    return net.b(y).square().mean()


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


@built("spiking surrogate", lambda g: (normal(g, 4, 12), numbers(g, 5)), a=linear(12, 12), b=linear(12, 5))
def _(net, x, y):
    v = torch.zeros(len(x), 12)
    o = 0
    for t in range(4):
        v = 0.9 * v + net.a(x[:, t])
        z = Fn2.apply(v - 1, 0.0)
        v = v - z.detach()
        o = o + net.b(z)
    return F.cross_entropy(o, y)


@built(
    "vmap ensemble",
    lambda g: (normal(g, 12), normal(g, 5)),
    w=weight(3, 12, 5),
    b=lambda: nn.Parameter(torch.zeros(3, 5)),
)
def _(net, x, y):
    out = torch.func.vmap(lambda w, b: torch.tanh(x @ w + b))(net.w, net.b)
    per = torch.func.vmap(lambda xi, yi: ((xi @ net.w[0] - yi) ** 2).sum())(x, y)
    return F.mse_loss(out.mean(0), y) + 0.1 * per.mean()


@built("pinn hessian", lambda g: (normal(g, 3),), a=linear(3, 16), b=linear(16, 1))
def _(net, x):
    def f(p):
        return net.b(torch.tanh(net.a(p))).squeeze(-1)

    df = torch.func.vmap(torch.func.grad(f))(x)
    lap = torch.func.vmap(lambda p: torch.func.hessian(f)(p).diagonal().sum())(x)
    return lap.square().mean() + (df.norm(dim=-1) - 1).square().mean()


@built(
    "s4d",
    lambda g: (normal(g, 6, 8),),
    logA=lambda: nn.Parameter(torch.rand(6, 4)),
    Ai=lambda: nn.Parameter(torch.randn(6, 4)),
    C=weight(6, 4, 2),
    D=lambda: nn.Parameter(torch.randn(6)),
    dt=lambda: nn.Parameter(torch.rand(6) * -1),
    o=linear(6, 6),
)
def _(net, u):
    """S4D: complex diagonal state, kernel by vandermonde, fft conv"""

    L = u.shape[-1]
    A = -net.logA.exp() + 1j * net.Ai
    dtA = A * net.dt.exp()[:, None]
    C = torch.view_as_complex(net.C) * (torch.exp(dtA) - 1) / A
    K = 2 * torch.einsum("hn,hnl->hl", C, torch.exp(dtA[..., None] * torch.arange(L))).real
    y = torch.fft.irfft(torch.fft.rfft(u, n=2 * L) * torch.fft.rfft(K, n=2 * L), n=2 * L)[..., :L] + u * net.D[:, None]
    return net.o(F.gelu(y).transpose(1, 2)).square().mean()


@built(
    "mamba loop",
    lambda g: (normal(g, 5, 8),),
    i=linear(8, 16),
    c=lambda: nn.Conv1d(8, 8, 3, groups=8, padding=2),
    p=linear(8, 1 + 8),
    dt=linear(1, 8),
    A=lambda: nn.Parameter(torch.rand(8, 4)),
    o=linear(8, 8),
)
def _(net, u):
    x, z = net.i(u).chunk(2, -1)
    x = F.silu(net.c(x.transpose(1, 2))[..., : u.shape[1]].transpose(1, 2))
    d, B, C = net.p(x).split([1, 4, 4], -1)
    d = F.softplus(net.dt(d))
    h = torch.zeros(len(u), 8, 4)
    ys = []
    dA = torch.exp(d[..., None] * -net.A.exp())
    dBx = d[..., None] * B[:, :, None] * x[..., None]
    for t in range(u.shape[1]):
        h = dA[:, t] * h + dBx[:, t]
        ys.append((h * C[:, t, None]).sum(-1))
    return net.o(torch.stack(ys, 1) * F.silu(z)).square().mean()


@built(
    "gated linear attention segsum",
    lambda g: (normal(g, 5, 8),),
    q=linear(8, 8),
    k=linear(8, 8),
    v=linear(8, 8),
    g=linear(8, 2),
)
def _(net, x):
    """chunked linear attention by cumsum of log decay and segsum"""

    b, t, _ = x.shape
    q, k, v = (f(x).view(b, t, 2, 4) for f in (net.q, net.k, net.v))
    a = F.logsigmoid(net.g(x)).cumsum(1)
    seg = a[:, :, None] - a[:, None]
    m = torch.ones(t, t, dtype=torch.bool).tril()
    dec = seg.masked_fill(~m[None, :, :, None], -torch.inf).exp()
    return torch.einsum("bihd,bjhd,bijh,bjhe->bihe", q, k, dec, v).square().mean()


@built("messages by index_add", lambda g: (normal(g, 5, 8),))
class Messages(nn.Module):
    """message passing: gather by edges, an MLP of each edge, index_add at its target"""

    def __init__(self):
        super().__init__()
        self.edge, self.head = mlp(8, 16, 8), nn.Linear(8, 1)
        self.register_buffer("source", torch.tensor([2, 0, 1, 4, 4, 3, 0, 1, 2]))

    def forward(self, x):
        source, target = self.source, (self.source + 1) % x.shape[1]
        sent = self.edge(x.index_select(1, source))
        kept = torch.zeros_like(x).index_copy(1, source[:3], sent[:, :3])
        return self.head(F.elu(kept.index_add(1, target, sent))).square().mean()


@built("latents attend", lambda g: (normal(g, 9, 6), numbers(g, 5)))
class Latents(nn.Module):
    """Perceiver: latents attend to many inputs and to each other, twice with the same weights"""

    def __init__(self):
        super().__init__()
        self.latents, self.q = nn.Parameter(torch.randn(4, 8)), nn.Linear(8, 8)
        self.kv, self.head = nn.Linear(6, 16), nn.Linear(8, 5)
        self.body = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, x, y):
        h = self.latents.repeat(x.shape[0], 1, 1)
        for _ in range(2):
            keys, values = self.kv(x).chunk(2, -1)
            h = self.body(h + F.scaled_dot_product_attention(self.q(h)[:, None], keys[:, None], values[:, None])[:, 0])
        return F.cross_entropy(self.head(h.mean(1)), y, label_smoothing=0.1)


@built("object queries", lambda g: (normal(g, 3, 16, 16), numbers(g, 6, 6), numbers(g, 7, 6)))
class ObjectQueries(nn.Module):
    """DETR: queries attend to themselves and to the features of an image; the matched ones are gathered"""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.MaxPool2d(2))
        self.queries, self.classes = nn.Embedding(6, 8), nn.Linear(8, 7)
        self.own, self.cross = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))

    def forward(self, x, match, y):
        found = self.features(x).flatten(2).transpose(1, 2)
        q = self.queries.weight.expand(x.shape[0], -1, -1)
        h = self.norms[0](q + self.own(q, q, q, need_weights=False)[0])
        h = self.norms[1](h + self.cross(h, found, found, need_weights=False)[0])
        return F.cross_entropy(self.classes(h.gather(1, match[..., None].expand_as(h))).flatten(0, 1), y.flatten())


@built(
    "graph scatter index_put",
    lambda g: (normal(g, 12), numbers(g, SAMPLES, 2), normal(g, 8)),
    a=linear(12, 8),
    m=linear(8, 8),
)
def _(net, x, e, y):
    h = net.a(x)
    n = h.shape[0]
    src, dst = e[:, 0], e[:, 1]
    agg = torch.zeros(n, 8).index_add(0, dst, net.m(h[src]))
    mx = (
        torch.full((n, 8), -1e9)
        .scatter_reduce(0, dst[:, None].expand(-1, 8), h[src], "amax", include_self=True)
        .clamp(min=-5)
    )
    z = torch.zeros(n, 8)
    z = z.index_put((dst,), h[src] * 0.1, accumulate=True)
    return F.mse_loss(agg + mx + z, y)


@built("sparsemax cums", lambda g: (normal(g, 12),), a=linear(12, 8))
def _(net, x):
    h = net.a(x)
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


@built("einsum odd", lambda g: (normal(g, 3, 4),), w=weight(3, 4, 5), u=weight(5, 5), t=weight(4))
def _(net, x):
    a = torch.einsum("...ij,kjl->...kil", x, net.w)
    b = torch.einsum("bkii->bk", torch.einsum("bkil,lm->bkim", a, net.u)[..., :, :3])
    c = torch.einsum("bij,j->bi", x, net.t)
    d = torch.einsum(x, [0, 1, 2], net.t, [2], [1, 0])
    e = torch.tensordot(x, net.w, dims=([2], [1]))
    f = torch.kron(net.u[:2, :2], net.u[:2, :2]).sum()
    return a.square().mean() + b.mean() + c.mean() + d.square().mean() + e.mean() + f


@built(
    "fno complex weights",
    lambda g: (normal(g, 4, 8, 8),),
    w=weight(4, 4, 3, 3, dtype=torch.cfloat),
    c=lambda: nn.Conv2d(4, 4, 1),
)
def _(net, x):
    f = torch.fft.rfft2(x, norm="ortho")
    o = torch.zeros_like(f)
    o[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", f[:, :, :3, :3], net.w)
    return F.gelu(torch.fft.irfft2(o, s=x.shape[-2:], norm="ortho") + net.c(x)).square().mean()


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


@built(
    "deep supervision",
    lambda g: (normal(g, 12), numbers(g, 4)),
    b=lambda: nn.ModuleList(nn.Linear(12, 12) for _ in range(3)),
    h=lambda: nn.ModuleList(nn.Linear(12, 4) for _ in range(3)),
)
def _(net, x, y):
    ls = []
    for b, h in zip(net.b, net.h, strict=False):
        x = F.relu(b(x))
        ls.append(F.cross_entropy(h(x), y))
    w = torch.tensor([0.2, 0.3, 0.5])
    return (torch.stack(ls) * w).sum()


@built(
    "uncertainty weights",
    lambda g: (normal(g, 12), numbers(g, 4), normal(g, 4)),
    a=linear(12, 4),
    b=linear(12, 4),
    ls=lambda: nn.Parameter(torch.zeros(2)),
)
def _(net, x, y, z):
    score = [F.cross_entropy(net.a(x), y), F.mse_loss(net.b(x), z)]
    return sum(torch.exp(-net.ls[i]) * score[i] + net.ls[i] for i in range(2))


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


@built(
    "mae",
    lambda g: (normal(g, 6, 12), torch.rand(SAMPLES, 6, generator=g)),
    e=linear(12, 8),
    m=lambda: nn.Parameter(torch.zeros(1, 1, 8)),
    pos=weight(1, 6, 8, scale=0.1),
    d=linear(8, 12),
    cls=lambda: nn.Parameter(torch.zeros(1, 1, 8)),
)
def _(net, x, noise):
    """random masking from given noise: argsort, gather, scatter back with mask token"""

    b, t, _ = x.shape
    h = net.e(x) + net.pos
    sh = noise.argsort(1)
    rs = sh.argsort(1)
    keep = sh[:, :3]
    v = torch.gather(h, 1, keep[..., None].expand(-1, -1, 8))
    v = torch.cat([net.cls.expand(b, -1, -1), v], 1).tanh()
    full = torch.cat([v[:, 1:], net.m.expand(b, 3, -1)], 1).gather(1, rs[..., None].repeat(1, 1, 8))
    mask = torch.ones(b, t)
    mask[:, :3] = 0
    mask = mask.gather(1, rs)
    score = (net.d(full) - x).square().mean(-1)
    return (score * mask).sum() / mask.sum()


@built(
    "masked lm mean",
    lambda g: (numbers(g, 20, 6), (torch.rand(SAMPLES, 6, generator=g) > 0.3).float()),
    e=lambda: nn.Embedding(20, 8),
    o=linear(8, 20),
)
def _(net, i, m):
    """masked mean: sum/count over batch"""

    score = F.cross_entropy(net.o(net.e(i[:, :-1])).transpose(1, 2), i[:, 1:], reduction="none")
    return (score * m[:, 1:]).sum() / m.sum().clamp(min=1)


@built(
    "diffusion",
    lambda g: (normal(g, 12), numbers(g, 50), normal(g, 12)),
    n=lambda: mlp(16, 24, 12),
    ab=lambda: torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0),
)
def _(net, x, t, e):
    a = net.ab[t][:, None]
    xt = a.sqrt() * x + (1 - a).sqrt() * e
    f = torch.exp(-math.log(1e4) * torch.arange(2) / 2)
    te = torch.cat([(t[:, None] * f).sin(), (t[:, None] * f).cos()], -1)
    w = torch.minimum(a / (1 - a), torch.tensor(5.0))
    return (w * (net.n(torch.cat([xt, te], -1)) - e).square()).mean()


@built("deq", lambda g: (normal(g, 12),), w=linear(12, 12), u=linear(12, 12))
def _(net, x):
    """fixed point in no_grad then one step with grad"""

    z = torch.zeros_like(x)
    with torch.no_grad():
        for _ in range(5):
            z = torch.tanh(net.w(z) * 0.5 + net.u(x))
    return torch.tanh(net.w(z) * 0.5 + net.u(x)).square().mean()


@built("cholesky svd", lambda g: (normal(g, 12),), a=linear(12, 12))
def _(net, x):
    h = net.a(x)
    c = h.T @ h / len(h) + torch.eye(12)
    L = torch.linalg.cholesky(c)
    ld = 2 * L.diagonal().log().sum()
    q = torch.cholesky_solve(h.T, L)
    return ld + q.square().mean() + torch.linalg.svdvals(h).sum() * 0.01 + torch.logdet(c)


@built(
    "real nvp slogdet",
    lambda g: (normal(g, 12),),
    n=lambda: nn.ModuleList(mlp(6, 16, 12) for _ in range(3)),
    W=lambda: nn.Parameter(torch.linalg.qr(torch.randn(12, 12))[0]),
)
def _(net, x):
    """RealNVP + affine slogdet"""

    x = x @ net.W
    ld = torch.linalg.slogdet(net.W)[1]
    for k, n in enumerate(net.n):
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
    e=linear(12, 5),
    T=weight(5, 5, scale=0.1),
)
def _(net, x, y, m):
    e = net.e(x)
    a = e[:, 0]
    for t in range(1, x.shape[1]):
        n = (a[:, :, None] + net.T + e[:, t, None]).logsumexp(1)
        a = torch.where(m[:, t, None], n, a)
    sc = e.gather(2, y[..., None]).squeeze(2)
    tr = net.T[y[:, :-1], y[:, 1:]]
    return (a.logsumexp(1) - (sc * m).sum(1) - (tr * m[:, 1:]).sum(1)).mean()


@built(
    "det solve layouts",
    lambda g: (normal(g, 12),),
    p=lambda: nn.Parameter((torch.randn(6, 6) * 0.2 + 2 * torch.eye(6)).t()),
    q=lambda: nn.Parameter(torch.randn(6, 6) * 0.2 + 2 * torch.eye(6)),
    b=linear(12, 6),
)
def _(net, x):
    h = net.b(x)
    return (
        torch.linalg.solve(net.p, h.T).square().mean()
        + torch.linalg.det(net.q.T) * 0.1
        + torch.linalg.solve(net.q, h.T).mean()
        + torch.linalg.det(net.p) * 0.01
        + torch.linalg.inv(net.p).sum()
        + torch.linalg.solve(net.q.t(), h.T).abs().mean()
    )


@built(
    "as_strided",
    lambda g: (normal(g, 12),),
    a=linear(12, 12),
    w=lambda: nn.Parameter(torch.randn(12, 12).t()),
    p=weight(12, 12, scale=0.2),
)
def _(net, x):
    h = net.a(x)
    y = h.as_strided((8, 4, 6), (12, 2, 1))
    z = net.p.as_strided((3, 12), (24, 1))
    return y.square().mean() + (h @ z.T).square().mean() + (h @ net.w).square().mean()


@built("distributions", lambda g: (normal(g, 12), numbers(g, 6)), a=linear(12, 8), b=linear(12, 6))
def _(net, x, y):
    from torch.distributions import Categorical, Independent, Normal

    m, score = net.a(x).chunk(2, -1)
    d = Independent(Normal(m, F.softplus(score) + 0.1), 1)
    Independent(Normal(torch.zeros(4), torch.ones(4)), 1)
    c = Categorical(logits=net.b(x))
    return (
        -d.log_prob(torch.ones(8, 4)).mean()
        - c.log_prob(y).mean()
        - 0.1 * c.entropy().mean()
        + torch.distributions.kl_divergence(Normal(m, F.softplus(score) + 0.1), Normal(0.0, 1.0)).mean()
    )


@built(
    "ppo", lambda g: (normal(g, 12), numbers(g, 6), normal(g), normal(g), normal(g)), a=linear(12, 6), v=linear(12, 1)
)
def _(net, x, act, old, adv, ret):
    lp = net.a(x).log_softmax(-1).gather(1, act[:, None])[:, 0]
    r = (lp - old).exp()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    return -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean() + 0.5 * F.mse_loss(net.v(x)[:, 0], ret)


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


@built(
    "barlow twins",
    lambda g: (normal(g, 12), normal(g, 12)),
    a=linear(12, 6),
    bn=lambda: nn.BatchNorm1d(6, affine=False),
)
def _(net, x, y):
    c = net.bn(net.a(x)).T @ net.bn(net.a(y)) / len(x)
    on = (torch.diagonal(c) - 1).pow(2).sum()
    off = c.flatten()[:-1].view(5, 7)[:, 1:].flatten().pow(2).sum()
    return on + 0.005 * off


@built("nt-xent by constant mask", lambda g: (normal(g, 12), normal(g, 12)), a=linear(12, 6))
def _(net, x, y):
    z = F.normalize(torch.cat([net.a(x), net.a(y)]), dim=1)
    score = z @ z.T / 0.5
    n = len(z)
    mask = torch.eye(n, dtype=torch.bool)
    score = score[~mask].view(n, -1)
    pos = torch.cat([torch.arange(n // 2, n) - 1, torch.arange(n // 2)])
    return F.cross_entropy(score, pos)


@built("pools", lambda g: (normal(g, 3, 8, 8),), c=lambda: nn.Conv2d(3, 4, 3), l=linear(4 * 4 + 4 * 9 + 4, 5))
def _(net, x):
    h = net.c(x)
    a = F.adaptive_max_pool2d(h, 2).flatten(1)
    b = F.avg_pool2d(h, 2, ceil_mode=True, count_include_pad=False, padding=0).flatten(1)
    p = F.lp_pool2d(h.abs() + 0.1, 2, 6).flatten(1)
    return net.l(torch.cat([a, b, p], 1)).square().mean()


@built(
    "max unpool",
    lambda g: (normal(g, 3, 8, 8),),
    c=lambda: nn.Conv2d(3, 4, 3, padding=1),
    d=lambda: nn.Conv2d(4, 3, 3, padding=1),
)
def _(net, x):
    h, i = F.max_pool2d(net.c(x), 2, return_indices=True)
    return F.mse_loss(net.d(F.max_unpool2d(h, i, 2)), x)


@built(
    "stft istft", lambda g: (normal(g, 64),), c=lambda: nn.Conv1d(1, 1, 5, padding=2), w=lambda: torch.hann_window(16)
)
def _(net, x):
    y = net.c(x[:, None])[:, 0]

    def f(z):
        return torch.stft(z, 16, 4, window=net.w, return_complex=True).abs()

    return (
        F.l1_loss(f(y), f(x))
        + torch.istft(torch.stft(y, 16, 4, window=net.w, return_complex=True), 16, 4, window=net.w).square().mean()
    )


@built(
    "hash grid",
    lambda g: (torch.rand(SAMPLES, 3, generator=g), normal(g, 3)),
    t=weight(64, 2, scale=0.1),
    m=lambda: mlp(2, 8, 3),
    pr=lambda: torch.tensor([1, 2654435761, 805459861]),
)
def _(net, x, c):
    i = (x * 16).long()
    h = (i[:, 0] * net.pr[0]) ^ (i[:, 1] * net.pr[1]) ^ (i[:, 2] * net.pr[2])
    return F.mse_loss(net.m(net.t[h % 64]), c)


@built(
    "slot attention",
    lambda g: (normal(g, 6, 8),),
    q=linear(8, 8, bias=False),
    k=linear(8, 8, bias=False),
    v=linear(8, 8, bias=False),
    g=lambda: nn.GRUCell(8, 8),
    mu=lambda: nn.Parameter(torch.randn(1, 3, 8)),
    n=lambda: nn.LayerNorm(8),
)
def _(net, x):
    k, v = net.k(x), net.v(x)
    z = net.mu.expand(len(x), -1, -1)
    for _ in range(3):
        p = z
        a = torch.softmax(k @ net.q(net.n(z)).transpose(1, 2) / 8**0.5, -1) + 1e-8
        a = a / a.sum(1, keepdim=True)
        z = net.g((a.transpose(1, 2) @ v).flatten(0, 1), p.flatten(0, 1)).view(len(x), 3, 8)
    return z.square().mean()


@built(
    "neural turing machine",
    lambda g: (normal(g, 4, 8),),
    c=lambda: nn.LSTMCell(12, 8),
    e=linear(8, 4),
    o=linear(8, 3),
    h0=lambda: torch.zeros(8),
)
def _(net, x):
    h = net.h0.expand(len(x), -1).contiguous()
    c = torch.zeros_like(h)
    M = torch.zeros(len(x), 5, 4)
    ys = []
    for t in range(x.shape[1]):
        k = net.e(h)
        w = F.cosine_similarity(M + 0.01, k[:, None], dim=-1).softmax(-1)
        r = torch.einsum("bn,bnm->bm", w, M)
        h, c = net.c(torch.cat([x[:, t], r], -1), (h, c))
        M = M * (1 - 0.1 * w[..., None]) + w[..., None] * net.e(h)[:, None]
        ys.append(net.o(h))
    return torch.stack(ys).square().mean()


@built(
    "encoder with mask input",
    lambda g: (normal(g, 5, 12), nn.Transformer.generate_square_subsequent_mask(5), torch.zeros(SAMPLES, 5)),
    e=lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(12, 3, 24, 0.0, batch_first=True), 2, enable_nested_tensor=False
    ),
)
def _(net, x, m, pad):
    return net.e(x, mask=m, src_key_padding_mask=pad).square().mean()


@built("empty parameter", lambda g: (normal(g, 12),), a=linear(12, 6), e=lambda: nn.Parameter(torch.zeros(0, 6)))
def _(net, x):
    return torch.cat([net.a(x), net.e]).square().mean()


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


@built(
    "half+double mix bool input",
    lambda g: (normal(g, 12), normal(g, 12) > 0),
    a=lambda: nn.Linear(12, 12).half(),
    b=lambda: nn.Linear(12, 12).double(),
    c=linear(12, 4),
)
def _(net, x, m):
    return net.c((net.a(x.half()).double() + net.b(x.double())).float() * m).square().mean()


@built("own generator", lambda g: (normal(g, 12),), a=linear(12, 12))
def _(net, x):
    g = torch.Generator().manual_seed(5)
    return (net.a(x) * (torch.rand(12, generator=g) > 0.5)).square().mean()


class FnU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, t):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g, (g * x).sum(0)


@built(
    "weight without forward reader",
    lambda g: (normal(g, 12),),
    a=linear(12, 6),
    t=lambda: nn.Parameter(torch.zeros(6)),
    b=linear(6, 3),
)
def _(net, x):
    """a weight that only the backward pass of a function knows"""

    return net.b(FnU.apply(net.a(x), net.t)).square().mean()


@built("torch.cond", lambda g: (normal(g, 12),), a=linear(12, 6))
def _(net, x):
    return torch.cond(x.sum() > 0, lambda y: net.a(y).square().mean(), lambda y: net.a(y).abs().mean(), (x,))


@built(
    "embedding max_norm",
    lambda g: (numbers(g, 30, 5),),
    e=lambda: nn.Embedding(30, 8, max_norm=1.0),
    f=lambda: nn.Embedding(30, 8, scale_grad_by_freq=True, padding_idx=0),
    o=linear(8, 3),
)
def _(net, i):
    return net.o(net.e(i) + net.f(i)).square().mean()


@dataclass
class Bt:
    x: torch.Tensor
    y: torch.Tensor


@built("dataclass in", lambda g: (Bt(normal(g, 12), normal(g, 5)),), a=linear(12, 5))
def _(net, b):
    return F.mse_loss(net.a(b.x), b.y)


@built("post accumulate hook", lambda g: (normal(g, 12),))
class PAG(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.a.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))

    def forward(self, x):
        return self.a(x).square().mean()


@built(
    "moe loop where",
    lambda g: (normal(g, 12),),
    g=linear(12, 4),
    e=lambda: nn.ModuleList(nn.Linear(12, 12) for _ in range(4)),
)
def _(net, x):
    """index_add by nonzero, mixtral style"""

    w, ix = net.g(x).softmax(-1).topk(2)
    out = torch.zeros_like(x)
    m = F.one_hot(ix, 4).permute(2, 1, 0)
    for k, e in enumerate(net.e):
        j, t = torch.where(m[k])
        out.index_add_(0, t, e(x[t]) * w[t, j, None])
    return out.square().mean()


@built("long convolution by fft", lambda g: (normal(g, 12, 16),), f=weight(12, 16), o=linear(16, 4))
def _(net, x):
    """each transform keeps the signal that it pads"""

    n = x.shape[-1]
    transformed = torch.fft.rfft(net.o.weight.sum() * x, n=2 * n) * torch.fft.rfft(net.f, n=2 * n)
    return net.o(torch.fft.irfft(transformed, n=2 * n)[..., :n]).square().mean()


@built(
    "images made larger",
    lambda g: (normal(g, 3, 6, 6), normal(g, 4, 12, 12)),
    a=lambda: nn.Conv2d(3, 4, 3, padding=1),
    b=lambda: nn.Conv2d(4, 4, 3, padding=1),
)
def _(net, x, y):
    h = F.relu(net.a(x))
    modes = ({"mode": "bilinear", "align_corners": True}, {"mode": "bicubic"}, {"mode": "nearest-exact"})
    return sum(F.l1_loss(net.b(F.interpolate(h, scale_factor=2, **mode)), y) for mode in modes)


def of_transformers(name: str) -> Kind:
    """A model whose blocks are linear scans."""
    from tests.tracing.test_linear_scans import of_hugging_face

    model, inputs = of_hugging_face(name, samples=SAMPLES)
    return Kind(model=model, inputs=lambda number: {key: t.roll(number, 1) for key, t in inputs.items()})


ZOO |= {name: partial(of_transformers, name) for name in ("rwkv", "mamba", "falcon_mamba")}

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
