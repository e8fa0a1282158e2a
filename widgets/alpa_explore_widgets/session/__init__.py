"""The state of an explorer and everything that changes it, without widgets. To read in this order:

- settings, history: the values of the controls; the plans so far.
- state: all of this, errors as they are shown, runs and the answers to questions as one immutable value, `State`, and
  the `StateStore` that holds the present one behind a lock.
- sources, backend: models and clusters by name; the functions of alpa_explore that capture, plan and run.
- levers: single changes of the settings and the hardware of a plan, to be planned.
- background: threads where the newest job wins, or where each job has its turn.
- asking/: questions, asked in the background.
- planning, runs (and attached hosts): work in the background; it reports by changing the state.
- session: `Session`, one method per action of a user; each returns at once.

A change of B, δ, schedule or mode is answered by `replan`, from known stage costs. One of memory, speed, links, nodes,
microbatch or sequence is estimated at once, and planned once it rests. Any other one waits for the Plan button. To add
a setting: a field of `Settings`, a control in panels/controls.py, its name in panels/actions.py; it is then an
option of `explore`. Limits and delays are in tuning. Imports nothing else of the front end.
"""
