"""The simulator: a schedule and the durations of its tasks -> a timeline.

    times      StageTimes: seconds and bytes of one stage; Links: which sends share a link
    kernel     the event loop, compiled
    timeline   the result: start and end of every task and send, bubbles, critical path
    simulate   the public function; `check`, whether a schedule can run: every task once, no deadlock
    memory     bytes held on a device of each submesh over time
    trace      a timeline in the trace event format of Perfetto

It imports `schedules.task`, `errors` and `numerics`; not `schedules.orders` or `schedules.catalog`.
"""
