"""The command for the course: `course` lists its lessons, writes it as a website, and brings its notebooks up to date.

A room of commands must not import another one.
"""
