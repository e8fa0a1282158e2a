"""Kinds of modules that people train, each as small as shows its kind.

An entry of `ZOO` makes a `Kind`: a module that returns its loss, and its inputs for the number of a microbatch. Kinds
that cannot be captured are in `REFUSED`, with a word of the error that says so.

It has more than 500 lines because it is a list.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm
from torch.utils.checkpoint import checkpoint

Inputs = tuple[Any, ...] | dict[str, torch.Tensor]
SAMPLES, WIDTH = 8, 12
"""Of a microbatch: divisible by 2 and 4, and by 3."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One module to train."""

    model: nn.Module
    inputs: Callable[[int], Inputs]


class Trained(nn.Module):
    """A module with the mean square of its output as its loss; of several outputs the sum."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        out = self.body(*inputs)
        outs = out if isinstance(out, tuple) else (out,)
        return sum((o if o.dim() == 0 else (o * o.conj()).real.float().mean()) for o in outs)


class Body(nn.Module):
    """A module from its parts and a function of it and its inputs."""

    def __init__(self, call: Callable[..., Any], parts: dict[str, Any]) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.call(self, *inputs)


ZOO: dict[str, Callable[[], Kind]] = {}


def floats(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Normal numbers; by default a vector of `WIDTH` for each sample."""
    return lambda draw: torch.randn(SAMPLES, *(shape or (WIDTH,)), generator=draw)


def whole(most: int, *shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Whole numbers below `most`."""
    return lambda draw: torch.randint(most, (SAMPLES, *shape), generator=draw)


def kind(
    name: str, call: Callable[..., Any], *inputs: Callable[[torch.Generator], torch.Tensor], **makers: Any
) -> None:
    """Add a kind. `makers` make its parts anew each time: a maker is a function, or a part that is copied."""

    def make() -> Kind:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(7)
            model = Trained(Body(call, {key: maker() for key, maker in makers.items()}))

        def drawn(number: int) -> Inputs:
            draw = torch.Generator().manual_seed(100 + number)
            return tuple(one(draw) for one in inputs or (floats(),))

        return Kind(model=model, inputs=drawn)

    assert name not in ZOO
    ZOO[name] = make


def linear(inner: int = WIDTH, outer: int = WIDTH, **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(inner, outer, **options)


def weight(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 0.3) -> Callable[[], nn.Parameter]:
    return lambda: nn.Parameter(scale * torch.randn(*(shape or (WIDTH, WIDTH)), dtype=dtype))


def frozen(make: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        return make().requires_grad_(requires_grad=False)

    return made


# ---- frozen weights

kind("lora", lambda m, x: m.base(x) + x @ m.a @ m.b, base=frozen(linear()), a=weight(WIDTH, 4), b=weight(4, WIDTH))
kind(
    "frozen table",
    lambda m, i: m.head(m.table(i)),
    whole(16, 6),
    table=frozen(lambda: nn.Embedding(16, WIDTH)),
    head=linear(),
)
kind("frozen last half", lambda m, x: m.b(F.gelu(m.a(x))), a=linear(), b=frozen(linear()))


def _biases_alone() -> nn.Module:
    made = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))
    for name, parameter in made.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return made


kind("biases alone are trained", lambda m, x: m.net(x), net=_biases_alone)
kind("frozen norm", lambda m, x: m.b(m.norm(m.a(x))), a=linear(), norm=frozen(lambda: nn.LayerNorm(WIDTH)), b=linear())

# ---- buffers: read, and written


def _written(m: Body, x: torch.Tensor) -> torch.Tensor:
    m.count += 1
    return m.a(x)


def _average(m: Body, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    with torch.no_grad():
        m.mean.mul_(0.9).add_(0.1 * y.mean(0))
    return y


def _codebook(m: Body, x: torch.Tensor) -> torch.Tensor:
    z = m.encode(x)
    nearest = torch.cdist(z, m.codes).argmin(1)
    q = m.codes[nearest]
    with torch.no_grad():
        hot = F.one_hot(nearest, 6).to(z.dtype)
        m.codes.mul_(0.9).add_(0.1 * (hot.t() @ z) / (hot.sum(0)[:, None] + 1))
    return m.decode(z + (q - z).detach()), F.mse_loss(z, q.detach())


kind("batch norm", lambda m, x: m.b(m.norm(m.a(x))), a=linear(), norm=lambda: nn.BatchNorm1d(WIDTH), b=linear())
kind(
    "batch norm of images",
    lambda m, x: m.norm(m.conv(x)),
    floats(3, 8, 8),
    conv=lambda: nn.Conv2d(3, 8, 3),
    norm=lambda: nn.BatchNorm2d(8),
)
kind("batch norm by its averages", lambda m, x: m.norm(m.a(x)), a=linear(), norm=lambda: nn.BatchNorm1d(WIDTH).eval())
kind(
    "batch norm without averages",
    lambda m, x: m.norm(m.a(x)),
    a=linear(),
    norm=lambda: nn.BatchNorm1d(WIDTH, track_running_stats=False),
)
kind("counter", _written, a=linear(), count=lambda: torch.zeros((), dtype=torch.int64))
kind("moving average", _average, a=linear(), mean=lambda: torch.zeros(WIDTH))
kind("codebook of averages", _codebook, encode=linear(), decode=linear(), codes=lambda: torch.randn(6, WIDTH))
kind("spectral norm", lambda m, x: m.a(x), a=lambda: spectral_norm(nn.Linear(WIDTH, WIDTH)))
kind("mask of booleans", lambda m, x: m.a(x) * m.mask, a=linear(), mask=lambda: torch.arange(WIDTH) % 3 > 0)
kind(
    "buffer of positions",
    lambda m, i: m.a(m.table(i) + m.place(m.at)),
    whole(16, 6),
    table=lambda: nn.Embedding(16, WIDTH),
    place=lambda: nn.Embedding(6, WIDTH),
    at=lambda: torch.arange(6),
    a=linear(),
)
kind("large buffer", lambda m, x: m.a(x) @ m.fixed, a=linear(), fixed=lambda: torch.randn(WIDTH, 48))

# ---- dtypes

kind(
    "complex weights",
    lambda m, x: (torch.complex(x, x.flip(1)) @ m.a) @ m.b,
    a=weight(dtype=torch.complex64),
    b=weight(dtype=torch.complex64),
)
kind("float64", lambda m, x: m.a(x.double()), a=lambda: nn.Linear(WIDTH, WIDTH).double())
kind(
    "float64 inside",
    lambda m, x: m.b((m.a(x).double() @ m.c).float()),
    a=linear(),
    b=linear(),
    c=weight(dtype=torch.float64),
)
kind(
    "whole weights that are not trained",
    lambda m, x: m.a(x) * m.scale,
    a=linear(),
    scale=lambda: nn.Parameter(torch.arange(1, WIDTH + 1), requires_grad=False),
)
kind(
    "rotations by complex numbers",
    lambda m, x: torch.view_as_real(torch.view_as_complex(m.a(x).view(-1, 6, 2)) * m.turn).flatten(1),
    a=linear(),
    turn=lambda: torch.polar(torch.ones(6), torch.arange(6.0)),
)

# ---- weights that are shared, unused or parts of another

kind("weight and its transpose", lambda m, x: F.relu(x @ m.w) @ m.w.t(), w=weight(WIDTH, 24))
kind("unused weight", lambda m, x: m.a(x), a=linear(), spare=linear())
kind("module used three times", lambda m, x: m.a(F.gelu(m.a(F.gelu(m.a(x))))), a=linear())
kind("halves of one weight", lambda m, x: (lambda a, b: F.silu(x @ a) * (x @ b))(*m.w.chunk(2, 1)), w=weight(WIDTH, 24))
kind(
    "stack of weights",
    lambda m, x: torch.einsum("bi,kij->bkj", x, torch.stack([m.a, m.b, m.c])),
    a=weight(),
    b=weight(),
    c=weight(),
)
kind("weight norm", lambda m, x: m.a(x), a=lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)))


class _Symmetric(nn.Module):
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w.triu() + w.triu(1).t()


def _symmetric() -> nn.Module:
    made = nn.Linear(WIDTH, WIDTH)
    parametrize.register_parametrization(made, "weight", _Symmetric())
    return made


kind("parametrised symmetric weight", lambda m, x: m.a(x), a=_symmetric)
kind("scale of one number", lambda m, x: m.a(x) * m.scale, a=linear(), scale=lambda: nn.Parameter(torch.tensor(1.5)))
kind(
    "weights of a network by a network",
    lambda m, x: torch.bmm(m.make(x).view(-1, 4, WIDTH), x[:, :, None]),
    make=linear(WIDTH, 4 * WIDTH),
)

# ---- what autograd is told


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -0.5 * gradient


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * gradient


def _hooked(m: Body, x: torch.Tensor) -> torch.Tensor:
    y = m.a(x)
    y.register_hook(lambda gradient: 0.5 * gradient)
    return m.b(y)


def _without(m: Body, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        teacher = m.a(x)
    return m.b(x) - teacher


def _cast(m: Body, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return m.b(F.gelu(m.a(x)))


kind("reversed gradient", lambda m, x: m.b(_Reversed.apply(m.a(x))), a=linear(), b=linear())
kind("gradient of its own", lambda m, x: m.b(_Squared.apply(m.a(x))), a=linear(), b=linear())
kind("hook", _hooked, a=linear(), b=linear())
kind("teacher without gradient", _without, a=linear(), b=linear())
kind("detached", lambda m, x: m.b(m.a(x)) + m.a(x).detach(), a=linear(), b=linear())
kind("straight through", lambda m, x: (lambda y: m.b(y + (y.round() - y).detach()))(m.a(x)), a=linear(), b=linear())
kind(
    "checkpoint",
    lambda m, x: m.b(checkpoint(m.a, x, use_reentrant=False)),
    a=lambda: nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH)),
    b=linear(),
)
kind("autocast", _cast, a=linear(), b=linear())
kind(
    "gradient that is zero",
    lambda m, x: m.norm(m.a(x)),
    a=linear(),
    norm=lambda: nn.BatchNorm1d(WIDTH, affine=False, track_running_stats=False),
)

# ---- norms and pointwise operators

for _name, _norm in {"rms norm": lambda: nn.RMSNorm(WIDTH), "group norm": lambda: nn.GroupNorm(3, WIDTH)}.items():
    kind(_name, lambda m, x: m.b(m.norm(m.a(x))), a=linear(), norm=_norm, b=linear())
kind(
    "instance norm",
    lambda m, x: m.norm(m.conv(x)),
    floats(3, 8),
    conv=lambda: nn.Conv1d(3, 6, 3),
    norm=lambda: nn.InstanceNorm1d(6, affine=True),
)
kind(
    "local response norm",
    lambda m, x: F.local_response_norm(m.conv(x), 3),
    floats(3, 8, 8),
    conv=lambda: nn.Conv2d(3, 6, 3),
)
for _name, _act in {
    "silu": F.silu,
    "squared relu": lambda y: F.relu(y) ** 2,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "hard swish": F.hardswish,
    "sine": torch.sin,
}.items():
    kind(_name, lambda m, x, act=_act: m.b(act(m.a(x))), a=linear(), b=linear())
kind("gated unit", lambda m, x: F.glu(m.a(x)), a=linear(WIDTH, 24))
kind(
    "highway",
    lambda m, x: (lambda g: g * torch.relu(m.a(x)) + (1 - g) * x)(torch.sigmoid(m.gate(x))),
    a=linear(),
    gate=linear(),
)
kind("prelu", lambda m, x: m.act(m.a(x)), a=linear(), act=lambda: nn.PReLU(WIDTH))
kind("polynomial", lambda m, x: torch.stack([x**k for k in range(4)], -1) @ m.w, w=weight(4, 1))

# ---- convolutions, pools, pads

for _name, _conv in {
    "circular convolution": lambda: nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular"),
    "reflected convolution": lambda: nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"),
    "replicated convolution": lambda: nn.Conv2d(4, 8, 3, padding=1, padding_mode="replicate"),
    "mean pool": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.AvgPool2d(2)),
    "max pool": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.MaxPool2d(2)),
    "adaptive pool": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.AdaptiveAvgPool2d(2)),
    "bilinear upsampling": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.Upsample(scale_factor=2, mode="bilinear")),
    "nearest upsampling": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.Upsample(scale_factor=2)),
    "pixel shuffle": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.PixelShuffle(2)),
    "unfold": lambda: nn.Sequential(nn.Conv2d(4, 8, 1), nn.Unfold(2, stride=2)),
}.items():
    kind(_name, lambda m, x: m.net(x), floats(4, 8, 8), net=_conv)
kind("causal convolution", lambda m, x: m.conv(F.pad(x, (2, 0))), floats(4, 9), conv=lambda: nn.Conv1d(4, 8, 3))
kind("convolution of volumes", lambda m, x: m.conv(x), floats(2, 4, 4, 4), conv=lambda: nn.Conv3d(2, 4, 3, padding=1))
kind(
    "squeeze and excite",
    lambda m, x: (lambda y: y * torch.sigmoid(m.a(y.mean((2, 3))))[:, :, None, None])(m.conv(x)),
    floats(3, 8, 8),
    conv=lambda: nn.Conv2d(3, WIDTH, 1),
    a=linear(),
)
kind(
    "skips of a u-net",
    lambda m, x: (lambda y: m.out(torch.cat([y, F.interpolate(m.down(y), scale_factor=2)], 1)))(m.stem(x)),
    floats(3, 8, 8),
    stem=lambda: nn.Conv2d(3, 4, 1),
    down=lambda: nn.Conv2d(4, 4, 2, stride=2),
    out=lambda: nn.Conv2d(8, 3, 1),
)

# ---- sequences


def _cells(m: Body, x: torch.Tensor) -> torch.Tensor:
    state = x.new_zeros(x.shape[0], WIDTH)
    for step in x.unbind(1):
        state = m.cell(step, state)
    return state


def _scan(m: Body, x: torch.Tensor) -> torch.Tensor:
    state, out = torch.zeros_like(x[:, 0]), []
    for step in m.a(x).unbind(1):
        state = torch.sigmoid(m.decay) * state + step
        out.append(state)
    return torch.stack(out, 1)


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (3, 4)).transpose(1, 2)


def _attention(bias: Callable[[Body], torch.Tensor] | None = None, **options: Any) -> Callable[..., torch.Tensor]:
    def call(m: Body, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (_heads(y) for y in m.qkv(x).chunk(3, -1))
        mask = None if bias is None else bias(m)
        return m.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options).transpose(1, 2).flatten(2))

    return call


_sequence = floats(6, WIDTH)
kind("lstm", lambda m, x: m.net(x)[0], _sequence, net=lambda: nn.LSTM(WIDTH, 8, batch_first=True))
kind("gru", lambda m, x: m.net(x)[0], _sequence, net=lambda: nn.GRU(WIDTH, 8, batch_first=True))
kind("cells in a loop", _cells, _sequence, cell=lambda: nn.GRUCell(WIDTH, WIDTH))
kind("scan in a loop", _scan, _sequence, a=linear(), decay=weight(WIDTH))
kind(
    "attention with learned biases",
    _attention(lambda m: m.bias),
    _sequence,
    qkv=linear(WIDTH, 36),
    out=linear(),
    bias=weight(3, 6, 6),
)
kind(
    "attention within a window",
    _attention(lambda m: m.near),
    _sequence,
    qkv=linear(WIDTH, 36),
    out=linear(),
    near=lambda: (torch.arange(6)[:, None] - torch.arange(6)).abs() < 3,
)
kind(
    "linear attention",
    lambda m, x: (lambda q, k, v: torch.einsum("bqd,bkd,bke->bqe", F.elu(q) + 1, F.elu(k) + 1, v))(
        *m.qkv(x).chunk(3, -1)
    ),
    _sequence,
    qkv=linear(WIDTH, 36),
)
kind(
    "encoder layer of torch",
    lambda m, x: m.net(x),
    _sequence,
    net=lambda: nn.TransformerEncoderLayer(WIDTH, 3, 24, dropout=0.0, batch_first=True),
)
kind(
    "latent queries",
    lambda m, x: torch.softmax(m.q @ m.k(x).transpose(1, 2), -1) @ m.v(x),
    _sequence,
    q=weight(4, WIDTH),
    k=linear(),
    v=linear(),
)
kind(
    "mixing of tokens",
    lambda m, x: x + m.b(m.a(x.transpose(1, 2)).transpose(1, 2)),
    _sequence,
    a=linear(6, 6),
    b=linear(),
)
kind("fourier mixing", lambda m, x: m.a(torch.fft.fft2(x).real), _sequence, a=linear())
kind("sums so far", lambda m, x: m.a(x).cumsum(1), _sequence, a=linear())

# ---- indices, experts, graphs

_E = 4


def _chosen_experts(m: Body, x: torch.Tensor) -> torch.Tensor:
    score, chosen = torch.softmax(m.gate(x), -1).topk(2, -1)
    gates = torch.zeros(x.shape[0], _E).scatter(1, chosen, score)
    return torch.einsum("be,eio,bi->bo", gates, m.w, x)


def _own_experts(m: Body, x: torch.Tensor) -> torch.Tensor:
    chosen = m.gate(x).argmax(-1)
    out = torch.zeros_like(x)
    for number, expert in enumerate(m.experts):
        out[chosen == number] = expert(x[chosen == number])
    return out


def _branch(m: Body, x: torch.Tensor) -> torch.Tensor:
    return m.a(x) if x.sum() > 0 else m.b(x)


kind("chosen experts", _chosen_experts, gate=linear(WIDTH, _E), w=weight(_E, WIDTH, WIDTH))
kind(
    "experts by boolean indices",
    _own_experts,
    gate=linear(WIDTH, _E),
    experts=lambda: nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(_E)),
)
kind("branch on data", _branch, a=linear(), b=linear())
kind(
    "experts by where",
    lambda m, x: torch.where(m.gate(x).argmax(-1, keepdim=True) == 0, m.a(x), m.b(x)),
    gate=linear(WIDTH, 2),
    a=linear(),
    b=linear(),
)
kind("gathered", lambda m, x, i: m.a(x).gather(1, i), floats(), whole(WIDTH, 3), a=linear())
kind("rows by index", lambda m, i: m.w[i].tanh() @ m.v, whole(16), w=weight(16, WIDTH), v=weight())
kind(
    "bag of tokens",
    lambda m, i: m.a(m.bag(i)),
    whole(16, 5),
    bag=lambda: nn.EmbeddingBag(16, WIDTH, mode="sum"),
    a=linear(),
)
kind("sorted", lambda m, x: m.a(x).sort(-1).values @ m.w, a=linear(), w=weight())
kind(
    "graph by its matrix",
    lambda m, x, g: torch.relu(torch.softmax(g, -1) @ m.a(x)),
    floats(6, WIDTH),
    floats(6, 6),
    a=linear(),
)
kind("set of things", lambda m, x: m.b(torch.relu(m.a(x)).sum(1)), _sequence, a=linear(), b=linear())
kind("masked softmax", lambda m, x: torch.softmax(m.a(x).masked_fill(x > 0.5, -1e4), -1), a=linear())
kind("bilinear", lambda m, x: m.net(x, x.flip(0)), net=lambda: nn.Bilinear(WIDTH, WIDTH, 6))
kind("outer product", lambda m, x: torch.einsum("bi,bj->bij", m.a(x), m.b(x)), a=linear(), b=linear())
kind(
    "triangular solve",
    lambda m, x: torch.linalg.solve_triangular(m.w.tril() + 3 * torch.eye(WIDTH), x.t(), upper=False),
    w=weight(),
)

# ---- losses


kind(
    "smoothed labels",
    lambda m, x, y: F.cross_entropy(m.a(x), y, label_smoothing=0.1),
    floats(),
    whole(WIDTH),
    a=linear(),
)
kind(
    "binary cross entropy",
    lambda m, x, y: F.binary_cross_entropy_with_logits(m.a(x), y.float()),
    floats(),
    whole(2, WIDTH),
    a=linear(),
)
kind("huber", lambda m, x, y: F.huber_loss(m.a(x), y), floats(), floats(), a=linear())
kind(
    "divergence",
    lambda m, x, y: F.kl_div(F.log_softmax(m.a(x), -1), torch.softmax(y, -1), reduction="batchmean"),
    floats(),
    floats(),
    a=linear(),
)
kind("cosine", lambda m, x, y: (1 - F.cosine_similarity(m.a(x), y)).mean(), floats(), floats(), a=linear())
kind("sum in place of mean", lambda m, x, y: F.mse_loss(m.a(x), y, reduction="sum"), floats(), floats(), a=linear())
kind("two losses", lambda m, x, y: (F.mse_loss(m.a(x), y), 0.1 * m.a(x).abs().mean()), floats(), floats(), a=linear())
kind("variation of the batch", lambda m, x: m.a(x).var(0), a=linear())
kind(
    "densities",
    lambda m, x: -torch.distributions.Normal(m.a(x), F.softplus(m.s), validate_args=False).log_prob(x.flip(1)).mean(),
    a=linear(),
    s=weight(WIDTH),
)
kind(
    "reductions by index",
    lambda m, x, n: torch.cat(
        [
            torch.zeros(3, WIDTH).scatter_reduce(0, n[:, None].expand(-1, WIDTH), m.a(x), how, include_self=own)
            for how, own in (("sum", True), ("mean", False), ("amax", False))
        ]
    ),
    floats(),
    whole(3),
    a=linear(),
)
kind("log of a sum", lambda m, x: torch.logsumexp(m.a(x), -1).mean() - math.log(WIDTH), a=linear())

REFUSED: dict[str, str] = {"experts by boolean indices": "mask", "branch on data": "branches"}
"""Kind -> a word of the error that refuses it."""
