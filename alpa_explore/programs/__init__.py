"""A plan as a program: instructions for every rank, checked, and run by a reference interpreter in one process."""
