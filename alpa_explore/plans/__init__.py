"""The plan: its value, its file, its tables and its text."""
