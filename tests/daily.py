"""What changes from day to day: the seed of random tests, and which of many like ones are run.

`ALPA_EXPLORE_TEST_DAY=2026-11-28` repeats those of a day. The processes of one run of pytest have the same day, also at
midnight.
"""

import os
from datetime import date

DAY = "ALPA_EXPLORE_TEST_DAY"


def today() -> date:
    """The day of this run."""
    return date.fromisoformat(os.environ.setdefault(DAY, date.today().isoformat()))
