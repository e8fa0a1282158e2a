"""What a Llama block keeps of a sample for its backward pass, by part, in bfloat16.

Of a token in a block of width h, with keys of width k in all and an MLP of width f: what enters and leaves both norms
(8h bytes), queries, keys and values (2h + 4k), what attention leaves (2h), gate and up (4f) and their product (2f):
12h + 4k + 6f bytes. Recomputation keeps less; tensor parallelism divides all but 8h, sequence parallelism all.
"""

from alpa_explore import units
from alpa_explore.figures.course.interactive import Control, with_controls
from alpa_explore.figures.course.training.block import SUMS
from alpa_explore.figures.marks import axis, bars, words
from alpa_explore.figures.style import OKABE_ITO, Drawing
from alpa_explore.models.catalog import llama

RECOMPUTED = ("none", "norms", "norms+attention", "full")
"""As `rematerialization` of the planner."""
MODELS = ("llama-3.2-1b", "llama-3-8b", "llama-3-70b")
_PARTS = ("block input", "norms", "q, k, v", "attention", "gate, up", "product")
_FREED = {
    "none": (),
    "norms": ("leaves norms", "product"),
    "norms+attention": ("leaves norms", "product", "attention"),
    "full": ("leaves norms", "product", "attention", "enters norms", "q, k, v", "gate, up"),
}
"""What is not kept, as it is computed again."""


def kept_bytes(
    model: str, tokens: int, recomputed: str = "none", degree: int = 1, sums: str = SUMS[0]
) -> dict[str, float]:
    """Bytes of a block on a device, by part."""
    config = llama(model)
    hidden, keys = config.hidden, config.hidden // config.heads * config.kv_heads
    whole = 1 / degree if sums == SUMS[1] else 1.0
    each = {
        "block input": 2 * hidden * whole,
        "enters norms": 2 * hidden * whole,
        "leaves norms": 4 * hidden * whole,
        "q, k, v": (2 * hidden + 4 * keys) / degree,
        "attention": 2 * hidden / degree,
        "gate, up": 4 * config.ffn / degree,
        "product": 2 * config.ffn / degree,
    }
    kept = {part: 0.0 if part in _FREED[recomputed] else tokens * size for part, size in each.items()}
    norms = kept.pop("enters norms") + kept.pop("leaves norms")
    return {part: norms if part == _PARTS[1] else kept[part] for part in _PARTS}


@with_controls(
    "Bytes that a block keeps of a sample, for each kind of recomputation",
    Control("model", "Model", MODELS, "llama-3.2-1b"),
    Control("tokens", "Tokens", (2048, 8192, 32768), 8192),
    Control("degree", "Devices that share a block", (1, 2, 4, 8), 1),
    Control("sums", "Sums by", SUMS, SUMS[0]),
)
def kept_figure(model: str, tokens: int, degree: int, sums: str) -> Drawing:
    """A bar for each kind of recomputation."""
    columns = {kind: kept_bytes(model, tokens, kind, degree, sums) for kind in RECOMPUTED}
    traces, bases = [], [0.0] * len(RECOMPUTED)
    for place, part in enumerate(_PARTS):
        sizes = [parts[part] / 2**20 for parts in columns.values()]
        hover = [f"{part}: {units.bytes_(2**20 * size)}" for size in sizes]
        looks = {"base": bases, "name": part, "hover": hover}
        traces.append(bars(list(RECOMPUTED), sizes, OKABE_ITO[place], ("", "/", ".", "x", "-", "+")[place], **looks))
        bases = [base + size for base, size in zip(bases, sizes, strict=True)]
    blocks, block = llama(model).layers, sum(columns["none"].values())
    return Drawing(
        [*traces, words(list(RECOMPUTED), bases, [units.bytes_(2**20 * base) for base in bases], "top center")],
        f"{model}, {tokens:,} tokens: {units.bytes_(block)} a block, {units.bytes_(blocks * block)} in {blocks} blocks",
        height=460,
        barmode="overlay",
        bargap=0.4,
        xaxis=axis("computed again", type="category"),
        yaxis=axis("MiB of a block on a device", (0, 1.12 * block / 2**20)),
    )
