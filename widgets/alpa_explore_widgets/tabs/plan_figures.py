"""The tabs that show one figure of the plan and have no controls of their own."""

from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class LayersPanel(PlanPanel):
    """Which operators make up each layer, and what crosses each cut?"""

    title, name = "Layers", "layers"
    question = (
        "Which operators make up each layer, how much does each compute, and how many bytes cross the cut after it?"
    )

    of_plan = False  # another B with the same stages leaves it as it is

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The layers and the stages that hold them."""
        plan = self.plan_of(state)
        stages = tuple((stage.layers, stage.devices) for stage in plan.stages)
        return (plan.layers, stages, plan.options.delta, plan.model.name, str(plan.cluster))


class ClusterPanel(PlanPanel):
    """Which devices run which stage, and how full is their memory?"""

    title, name = "Cluster", "cluster"
    made_ahead = True
    question = "Which devices run which stage, and how full is their memory?"


class StageCostsPanel(PlanPanel):
    """How long would any range of layers take on any submesh?"""

    title, name = "Costs", "stage_costs"
    made_ahead = True
    question = "How long would any range of layers take on any submesh, and which of them does the plan use?"


class TMaxPanel(PlanPanel):
    """How slow may the slowest stage be?"""

    title, name = "t_max", "t_max"
    made_ahead = True
    question = "How slow may the slowest stage be? Each t_max gives T = Σt + (B − 1) · t_max; the plan has the least T."


class MicrobatchesPanel(PlanPanel):
    """What would more or fewer microbatches change?"""

    title, name = "Microbatches", "microbatches"
    made_ahead = True
    room = "comparisons"
    question = "What would more or fewer microbatches change: T, the throughput, and the memory of a device?"
