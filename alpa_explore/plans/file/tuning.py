"""Limits of a plan file, and where its lines are broken."""

MAX_BYTES = 128 * 2**20
"""Largest plan file that is read or written. A plan for 512 devices takes a tenth of it."""
LINE_CHARACTERS = 150
"""Characters up to which a list or an object stays on one line. For reading alone."""
BROKEN_LEVELS = 4
"""Nesting levels that are broken over lines; what is nested more deeply stays on one line, so that an operator of a
stage is one line."""
MESSAGE_CHARACTERS = 160
"""Characters to which a message about a damaged file is shortened: it may quote what the file holds."""
