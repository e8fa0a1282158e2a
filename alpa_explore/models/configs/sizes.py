"""What the configs share: heads that divide, the width of projections."""

from alpa_explore.errors import OptionError


def check_heads(hidden: int, heads: int, kv_heads: int) -> None:
    """OptionError unless `heads` divides the hidden size and `kv_heads` divides `heads`."""
    check_divides("hidden size", hidden, "heads", heads)
    check_divides("number of heads", heads, "heads of keys and values", kv_heads)


def check_divides(what: str, size: int, parts: str, count: int) -> None:
    """OptionError, naming both, unless `count` is positive and divides `size`."""
    if count < 1 or size % count:
        raise OptionError(
            f"The {what} must be a multiple of the number of {parts}",
            found=f"{what} {size}, {parts} {count}",
            remedy=f"Give a number of {parts} that divides {size}.",
        )


def qkv_width(hidden: int, heads: int, kv_heads: int) -> int:
    """Columns of the weight that makes queries, keys and values."""
    return (heads + 2 * kv_heads) * (hidden // heads)
