"""The picture of the first page: a pipeline in 1F1B order that fills, runs and drains again and again.

Its times are those of the simulator of schedules; CSS moves it, so that it needs no script, and stands still for
readers who ask for less motion.
"""

from __future__ import annotations

from html import escape

from alpa_explore import units
from alpa_explore.figures.style import OKABE_ITO, ink_on
from alpa_explore.schedules.orders.one_f_one_b import one_f_one_b
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.schedules.task import Action

_STAGES, _MICROBATCHES = 4, 8
"""As in the question of lesson 08."""
_TIMES = StageTimes(forward_seconds=1.0, backward_input_seconds=2.0, backward_weight_seconds=0.0)
_WIDTH, _HEIGHT, _ROW = 22, 20, 24
"""Of a forward pass, in units of the picture; of a bar; of a stage."""
_TICK = 0.18
"""Seconds of the film for a forward pass."""


def moving_pipeline_html() -> str:
    """The picture with what it shows in words, as HTML."""
    timeline = simulate(one_f_one_b(_STAGES, _MICROBATCHES), [_TIMES] * _STAGES)
    schedule, span = timeline.schedule, timeline.makespan_seconds
    bars = []
    for action, stage, microbatch, start, end in zip(
        schedule.actions,
        schedule.stages,
        schedule.microbatches,
        timeline.start_seconds,
        timeline.end_seconds,
        strict=True,
    ):
        if action not in (Action.FORWARD, Action.BACKWARD):
            continue  # the update, which takes no time here
        x, y, width = _WIDTH * float(start), _ROW * int(stage), _WIDTH * float(end - start)
        colour = OKABE_ITO[int(microbatch) % len(OKABE_ITO)]
        kind = "forward" if action == Action.FORWARD else "backward"
        bars.append(
            f'<g class="{kind}" style="--own:{colour};--on:{ink_on(colour)};--at:{float(start) * _TICK:.2f}s">'
            f'<rect x="{x:g}" y="{y}" width="{width - 1:g}" height="{_HEIGHT}" rx="2"/>'
            f'<text x="{x + width / 2 - 0.5:g}" y="{y + 14}">{int(microbatch) + 1}</text></g>'
        )
    idle = units.percent(timeline.bubble_fraction)
    words = (
        f"{_MICROBATCHES} microbatches pass through {_STAGES} stages of a pipeline, forward (full) and backward "
        f"(outlined). Where a row is empty, a device waits: {idle} of the time."
    )
    return (
        f'<figure class="moving" style="--film:{2 * span * _TICK:.1f}s">'
        f'<svg viewBox="0 0 {_WIDTH * span:g} {_ROW * _STAGES}" role="img" aria-label="{escape(words)}">'
        f"{''.join(bars)}</svg><figcaption>{words} Which order waits less, and what does a device then hold? "
        f'<a href="08_schedules.html">Lesson 08</a></figcaption></figure>'
    )
