"""The order of tasks in a pipeline, and what it comes to: schedules as tables, a simulator, timelines."""
