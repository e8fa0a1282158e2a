"""Reductions, scans, softmax, norms, losses."""

import torch

from tests.sharding.call import Call, integers, mask, positive, real

x = real(4, 8, 16)
image = real(8, 4, 3, 5)
EVERY = "dim0 dim1 dim2"
MASKED = x.masked_fill(mask(4, 1, 16), -torch.inf)  # whole rows, and of every other row the first half
MASKED[:, :4] = -torch.inf


def aten(kind, *arguments, factors, **keywords):
    return Call(f"aten.{kind}", *arguments, factors=factors, **keywords)


def batch_norm(*, x=image, weight=True, training=True, dtype=torch.float64, statistics=torch.float64):
    c = x.shape[1]
    w, b = (positive(c, dtype=statistics), real(c, dtype=statistics)) if weight else (None, None)
    return aten(
        "_native_batch_norm_legit_functional.default",
        x.to(dtype),
        w,
        b,
        real(c, dtype=statistics),
        positive(c, dtype=statistics),
        training,
        0.1,
        1e-5,
        factors="batch channels",
    )


def batch_norm_backward(*, x=image, weight=True, training=True, mask=(True, True, True)):
    c = x.shape[1]
    dims = [d for d in range(x.dim()) if d != 1]
    mean, rstd = x.mean(dims), (x.var(dims, correction=0) + 1e-5).rsqrt()
    return aten(
        "native_batch_norm_backward.default",
        real(*x.shape),
        x,
        positive(c) if weight else None,
        real(c),
        positive(c),
        mean,
        rstd,
        training,
        1e-5,
        list(mask),
        factors="batch channels",
    )


def group_norm_backward(mask):
    _, mean, rstd = torch.ops.aten.native_group_norm(image, None, None, 8, 4, 15, 2, 1e-5)
    return aten(
        "native_group_norm_backward.default",
        real(*image.shape),
        image,
        mean,
        rstd,
        positive(4),
        8,
        4,
        15,
        2,
        list(mask),
        factors="dim0",
    )


def layer_norm_backward(mask, weight=True):
    w, b = (positive(16), real(16)) if weight else (None, None)
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, [16], w, b, 1e-5)
    return aten(
        "native_layer_norm_backward.default", real(*x.shape), x, [16], mean, rstd, w, b, list(mask), factors="dim0 dim1"
    )


def rms_norm(*, weight=True, dims=1, dtype=torch.float64, factors="dim0 dim1"):
    """Forward and backward."""
    given = x.to(dtype)
    w = positive(*x.shape[3 - dims :], dtype=dtype) if weight else None
    _, rstd = torch.ops.alpa_explore.rms_norm(given, w, 1e-5, dims)
    return (
        Call("alpa_explore.rms_norm.default", given, w, 1e-5, dims, factors=factors),
        Call(
            "alpa_explore.rms_norm_backward.default", real(*x.shape, dtype=dtype), given, rstd, w, dims, factors=factors
        ),
    )


def ctc():
    """Forward and backward; a target of each length from none to all, and one with too few frames for it."""
    scores, targets = torch.log_softmax(real(9, 8, 6), 2), integers(5, 8, 4) + 1
    frames, lengths = torch.tensor([9, 9, 9, 9, 9, 8, 7, 1]), torch.tensor([0, 1, 2, 3, 4, 4, 2, 2])
    arguments = (scores, targets, frames, lengths, 0, True)
    loss, alpha = torch.ops.alpa_explore.ctc_loss(*arguments)
    back = (real(8), *arguments[:4], loss, alpha, 0, True)
    return (
        Call("alpa_explore.ctc_loss.default", *arguments, factors="n"),
        Call("alpa_explore.ctc_loss_backward.default", *back, factors="n"),
    )


def recurrences(reverse):
    """Forward and backward; of an LSTM with the gradient of its last state and without, of a GRU with a bias and
    without."""
    every, gates, h, c = real(8, 5, 6), real(8, 5, 24), real(8, 6), real(8, 6)
    of_lstm, of_gru, of_rnn, bias = real(24, 6), real(18, 6), real(6, 6), real(18)
    _, _, cells, active = torch.ops.alpa_explore.lstm_recurrence(gates, of_lstm, h, c, reverse)
    made, kept = torch.ops.alpa_explore.gru_recurrence(gates[..., :18], of_gru, bias, h, reverse)
    small = gates[..., :18].contiguous()
    calls = [
        ("lstm_recurrence", gates, of_lstm, h, c, reverse),
        *(("lstm_recurrence_backward", every, of_lstm, cells, active, c, last, reverse) for last in (None, real(8, 6))),
        *(("gru_recurrence", small, of_gru, b, h, reverse) for b in (bias, None)),
        ("gru_recurrence_backward", every, of_gru, made, kept, h, reverse),
    ]
    for relu in (False, True):
        calls += [
            ("rnn_recurrence", every, of_rnn, h, reverse, relu),
            ("rnn_recurrence_backward", real(8, 5, 6), of_rnn, every, reverse, relu),
        ]
    return tuple(Call(f"alpa_explore.{kind}.default", *arguments, factors="dim0") for kind, *arguments in calls)


def linear_scans():
    """RWKV's time mix and Mamba's selective scan, forward and backward; the latter with all that it can have and with
    as little as it can have. Samples and channels are independent."""
    key, value, first, decay = real(4, 5, 8), real(4, 5, 8), real(8), -positive(8)
    x, delta, z = real(4, 8, 5), real(4, 8, 5), real(4, 8, 5)
    a, b, c, d, bias = -positive(8, 2), real(4, 2, 5), real(4, 2, 5), real(8), real(8)
    full, least = (x, delta, a, b, c, d, z, bias, True), (x, positive(4, 8, 5), a, b, c, None, None, None, False)
    calls = [("wkv_backward", real(4, 5, 8), decay, first, key, value)]
    for inputs, last in ((full, real(4, 8, 2)), (least, None)):
        calls += [("selective_scan", *inputs), ("selective_scan_backward", real(4, 8, 5), last, *inputs)]
    return (
        Call("alpa_explore.wkv.default", decay, first, key, value, factors="d n"),
        *(Call(f"alpa_explore.{kind}.default", *arguments, factors="n d") for kind, *arguments in calls),
    )


SCORES, TARGETS, WEIGHTS = torch.log_softmax(real(8, 4), 1), integers(4, 8), positive(4)
CLASSES = TARGETS.clone()
TARGETS[2:5] = -100  # the shards differ in how many targets count
NARROW = torch.log_softmax(real(8, 4, dtype=torch.float32), 1).half()
MAPS, MAP_TARGETS = torch.log_softmax(real(8, 4, 3, 3), 1), integers(4, 8, 3, 3)


def nll(reduction, *, scores=SCORES, targets=TARGETS, weight=None, kind="nll_loss", ignored=-100):
    return aten(f"{kind}_forward.default", scores, targets, weight, reduction, ignored, factors="batch classes")


def nll_backward(reduction, *, scores=SCORES, targets=TARGETS, weight=None, kind="nll_loss", ignored=-100):
    gradient = real(*targets.shape) if reduction == 0 else real()
    total = torch.ops.aten.nll_loss_forward(SCORES, TARGETS, weight, 1, -100)[1]
    rest = (scores, targets, weight, reduction, ignored, total)
    return aten(f"{kind}_backward.default", gradient, *rest, factors="batch classes")


CALLS = (
    aten("sum.default", x, factors="dim0 dim1 dim2 sum"),
    aten("sum.default", mask(4, 8), factors="dim0 dim1"),
    aten("sum.dim_IntList", x, [0, -1], True, factors="dim0 dim1 dim2 sum"),
    aten("sum.dim_IntList", x, [1], factors="dim0 dim1 dim2 sum", dtype=torch.float32),
    aten("sum.dim_IntList", x, [], factors="dim0 dim1 dim2 sum"),
    aten("mean.default", x, factors="dim0 dim1 dim2 sum"),
    aten("mean.dim", x, [-1], True, factors="dim0 dim1 dim2 sum"),
    aten("mean.dim", x, [0, 1], factors="dim0 dim1 dim2 sum", dtype=torch.float32),
    *(aten(f"{name}.default", x, [1], True, factors="dim0 dim2") for name in ("amax", "amin")),
    *(aten(f"{name}.dim", x, -1, factors="dim0 dim1") for name in ("max", "min")),
    *(aten(f"{name}.default", x, 1, True, factors="dim0 dim2") for name in ("argmax", "argmin")),
    *(aten(f"{name}.default", x, factors="") for name in ("max", "min", "prod", "argmax")),
    *(aten(f"{name}.default", mask(4, 8), factors="") for name in ("any", "all")),
    *(aten(f"{name}.dim", mask(4, 8), 0, True, factors="dim1") for name in ("any", "all")),
    *(aten(f"{name}.dims", mask(4, 8, 4), [0, 2], factors="dim1") for name in ("any", "all")),
    aten("prod.dim_int", x, 1, factors="dim0 dim2"),
    aten("logsumexp.default", x, [1, 2], True, factors="dim0"),
    *(
        aten(f"{name}.correction", x, [1], factors="dim0 dim2", correction=1, keepdim=True)
        for name in ("var", "std", "var_mean")
    ),
    aten("histc.default", positive(8, 4), 4, 0, 1, factors="dim0 dim1"),
    aten("histc.default", positive(8), 4, factors=""),
    *(aten(f"{name}.default", x, -1, False, factors=EVERY) for name in ("_softmax", "_log_softmax")),
    *(aten(f"{name}.default", 1e3 * x.half(), 1, False, factors=EVERY) for name in ("_softmax", "_log_softmax")),
    *(aten(f"{name}.default", MASKED, 1, False, factors=EVERY) for name in ("_softmax", "_log_softmax")),
    aten("_safe_softmax.default", x, 0, factors=EVERY),
    aten("_safe_softmax.default", MASKED, 1, factors=EVERY),
    aten("_softmax.default", real(), 0, False, factors=""),
    aten("_softmax_backward_data.default", x, torch.softmax(x, 1), 1, torch.float64, factors=EVERY),
    aten("_softmax_backward_data.default", x.half(), torch.softmax(x, 1).half(), 1, torch.float16, factors=EVERY),
    aten("_log_softmax_backward_data.default", x, torch.log_softmax(x, -1), -1, torch.float64, factors=EVERY),
    aten(
        "_log_softmax_backward_data.default",
        x.bfloat16(),
        torch.log_softmax(x, -1).bfloat16(),
        -1,
        torch.bfloat16,
        factors=EVERY,
    ),
    aten("cumsum.default", x, 1, factors="dim0 dim2"),
    aten("cumsum.default", real(), 0, factors=""),
    aten("sort.default", x, factors="dim0 dim1"),
    aten("sort.default", x, 0, True, factors="dim1 dim2"),
    aten("topk.default", x, 4, factors="dim0 dim1"),
    aten("topk.default", x, 2, 1, factors="dim0 dim2"),
    aten("native_layer_norm.default", x, [16], positive(16), real(16), 1e-5, factors="dim0 dim1"),
    aten("native_layer_norm.default", x, [8, 16], None, None, 1e-5, factors="dim0"),
    *(layer_norm_backward(m) for m in ((True, True, True), (True, False, False), (False, True, True))),
    layer_norm_backward((True, False, False), weight=False),
    *ctc(),
    *recurrences(False),
    *recurrences(True),
    *linear_scans(),
    *rms_norm(),
    *rms_norm(weight=False),
    *rms_norm(dims=2, factors="dim0"),
    *rms_norm(dims=2, weight=False, factors="dim0"),
    *rms_norm(dtype=torch.bfloat16),
    aten("native_group_norm.default", image, positive(4), real(4), 8, 4, 15, 2, 1e-5, factors="dim0"),
    *(group_norm_backward(m) for m in ((True, True, True), (True, False, False))),
    batch_norm(),
    batch_norm(weight=False),
    batch_norm(training=False),
    batch_norm(x=real(8, 4) + 1e3),  # the squares of x would drown the variance
    batch_norm(dtype=torch.bfloat16, statistics=torch.float32),
    aten(
        "_native_batch_norm_legit.no_stats",
        image.half(),
        positive(4).half(),
        real(4).half(),
        True,
        0.1,
        1e-5,
        factors="batch channels",
    ),
    batch_norm_backward(),
    batch_norm_backward(weight=False, mask=(True, False, False)),
    batch_norm_backward(training=False),
    batch_norm_backward(x=real(8, 4)),
    *(nll(reduction) for reduction in (0, 1, 2)),
    *(nll(reduction, weight=WEIGHTS) for reduction in (0, 1, 2)),
    nll(1, scores=NARROW),
    nll(1, scores=NARROW, weight=WEIGHTS.half()),
    *(nll(reduction, targets=CLASSES, ignored=int(CLASSES[0])) for reduction in (0, 1, 2)),
    nll(1, targets=CLASSES, weight=WEIGHTS, ignored=int(CLASSES[0])),
    aten("nll_loss_forward.default", SCORES[:1], CLASSES[:1], None, 1, -100, factors="classes"),
    aten("nll_loss_forward.default", SCORES[0], CLASSES[0], None, 1, -100, factors=""),
    nll(1, targets=torch.full((8,), -100)),  # nothing counts: not a number, on every device
    *(nll(r, scores=MAPS, targets=MAP_TARGETS, kind="nll_loss2d") for r in (0, 1)),
    *(nll_backward(reduction) for reduction in (0, 1, 2)),
    nll_backward(1, weight=WEIGHTS),
    *(nll_backward(reduction, targets=CLASSES, ignored=int(CLASSES[0])) for reduction in (0, 1)),
    nll_backward(1, targets=CLASSES, weight=WEIGHTS, ignored=int(CLASSES[0])),
    nll_backward(1, scores=MAPS, targets=MAP_TARGETS, kind="nll_loss2d"),
)
