"""The figures of the course: one idea of a lesson each, moved by a slider, a menu or a play button.

Every state that a control can reach is computed beforehand, so that a lesson also works as a page without a kernel. A
module `NAME` has `NAME_figure`; what it shows is computed by the library, or by a public function beside it that the
lesson uses as well.

interactive      a figure with controls: its states are drawn when they are asked for, or all for a page
planning/        lessons 00 to 07: how a plan is made
training/        lessons 08 to 17: schedules, memory, attention, experts, resharding, coverage, blocks, layouts

Imports keys, marks, style and tuning of the package above; not the other rooms.
"""
