"""Keys: text that identifies what a mark of a figure stands for.

Examples: 'stage:2/layer:3/operator:addmm_4', 'stage:2/device:5'. A mark carries its key as `customdata` (where that is
a list, as its last item), a whole trace as `meta`. The selection is a key too. A mark belongs to the selection where
the two keys have no kind with different values: selecting layer 3 highlights its operators, its stage and the devices
of its stage, and no other layer. A click on a mark of another plan opens that: of a `plan`, one of the history; of a
`layout`, by its rank among those that are priced; of a `change`, the plan with other settings (`change_key`). That of
something `aside` (`aside_key`) plans it while the plan on screen stays. A mark that belongs to no stage can carry a
*link*, 'select stage:2': a click on it makes the selection, which neither highlights nor fades the mark.
`static/plotly_figure.js` of the front end applies the same rules in the browser. Imports no plotly.
"""

from urllib.parse import quote, unquote

from alpa_explore.plans.plan import Plan

KINDS = ("stage", "layer", "operator", "device", "plan", "change", "layout", "aside")
LINK = "select "
"""What a link begins with."""


def key(**parts: int | str) -> str:
    """`key(stage=2, layer=3)` -> 'stage:2/layer:3'."""
    return "/".join(f"{kind}:{quote(str(parts[kind]), safe='')}" for kind in KINDS if kind in parts)


def change_key(name: str, value: object) -> str:
    """The key of the plan with other settings: 'cluster' is as '2x8:h100'; 'microbatches' B and the samples of each, as
    '16x2'; 't_max' seconds; 'stage' its layers and its submesh, as '2-3@1x4'."""
    return key(change=f"{name}={value}")


def aside_key(name: str, value: object) -> str:
    """The key of what is planned aside: a 'lever' or a 'baseline' by its name, a 'layout' by its rank; and of what is
    kept or no longer ('keep'), a plan by its place in the history."""
    return key(aside=f"{name}={value}")


def link(**parts: int | str) -> str:
    """`link(stage=2)` -> 'select stage:2'."""
    return LINK + key(**parts)


def read_key(text: str) -> dict[str, str]:
    """The parts of a key; empty for text that is not a key."""
    pairs = (part.partition(":") for part in text.split("/"))
    return {kind: unquote(value) for kind, _, value in pairs if kind in KINDS and value}


def agree(a: str, b: str) -> bool:
    """Whether two keys have no kind with different values."""
    first, second = read_key(a), read_key(b)
    return all(second.get(kind, value) == value for kind, value in first.items())


def valid_key(plan: Plan, text: str) -> str:
    """The key `text` restricted to what `plan` contains: a selection outlives a change of plan.

    A layer or a device that is in another stage of the new plan gets that stage.
    """
    parts = read_key(text)
    stage_of_layer = {layer: s.index for s in plan.stages for layer in range(s.layers[0], s.layers[1] + 1)}
    stage_of_device = {device: s.index for s in plan.stages for device in s.devices}
    valid: dict[str, int | str] = {}
    layer, device, stage = (_number(parts.get(kind)) for kind in ("layer", "device", "stage"))
    if layer in stage_of_layer:
        valid = {"stage": stage_of_layer[layer], "layer": layer}
        if "operator" in parts:
            valid["operator"] = parts["operator"]
    elif device in stage_of_device:
        valid = {"stage": stage_of_device[device], "device": device}
    elif 0 <= stage < len(plan.stages):
        valid = {"stage": stage}
    return key(**valid)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else -1
