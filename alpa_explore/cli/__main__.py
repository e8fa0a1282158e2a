"""`python -m alpa_explore.cli`."""

import sys

from alpa_explore.cli import main

sys.exit(main())
