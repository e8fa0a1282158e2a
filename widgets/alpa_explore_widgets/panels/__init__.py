"""The parts of the explorer around its tabs.

Each panel has a `widget` and a method `show` that updates it for a state. In the order on the page:

- verdict and actions (the toolbar): across the top; verdict also has the best layouts and the stages above the tabs.
- messages: above the tabs, with the selection.
- aside: levers and baselines that can be planned aside, as lists of the Why and Compare tabs.
- hosts: the attached hosts and their links, and kernels that are timed there; parts of the Run tab.
- controls (made of setting_controls), spec_constraints, actions (the Plan button): the left column; on a narrow page
  the sliders of B and δ stay on top, and a drawer has the other controls. spec_constraints also has the controls of the
  Sharding tab.

Panels call methods of the session and import elements and session, but no tabs.
"""
