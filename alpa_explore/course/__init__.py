"""The course: exercises that grade themselves, with truths computed by the library; guesses; the lessons as a website.

    from alpa_explore.course import exercise, hint, solution, student, guess
    student("s123")            the numbers of this student; without it, those of everybody
    exercise("03.1")           the question with these numbers
    exercise("03.1", 0.012)    right or wrong, and why
    hint("03.1")               the next hint; solution("03.1"): the solution with its code
    reveal(0.3, truth, "s")    a guess beside what came out
    guess("llama-3-8b", "1x8:h100", tp=2, dp=4)   a layout against all others; league(): the guesses so far
    task("ring-all-reduce", f) a function that the student wrote, run against a check; task() lists all tasks
    points("03")               the points of a lesson: a number, which nbgrader reads

kinds       kinds of answers: number, choice, items, words; how each is read, compared and shown
definition  an exercise for a student: its numbers, truth, mistakes and texts, from a table of a file
examples    what lessons and exercises share: plans and graphs, a model of a few blocks, an MLP as a sharding problem
exercises   the exercises: files of tables, and beside each a module whose names they use
coding      functions to write, as text files; their checks; the process in which a solution runs
registry    all exercises by their id; the one that a mistyped id means; an answer to a verdict
cards       what the functions return: HTML in a notebook, text on a terminal
students    who answers, what was solved; kept in memory and, where possible, in the user's folder
lessons     the notebooks as values: goals, nbgrader, the index
ask         the functions of a notebook
guessing    a guess of a layout and what came out; the league of guesses
exam        questions and answers for an examination, drawn by seeds
site        the lessons as a website, which needs no kernel

It stands above the planner, its questions and the figures, and below the command line, and imports no front end.
"""

from __future__ import annotations

from alpa_explore.course.ask import exercise as exercise
from alpa_explore.course.ask import hint as hint
from alpa_explore.course.ask import points as points
from alpa_explore.course.ask import reveal as reveal
from alpa_explore.course.ask import solution as solution
from alpa_explore.course.ask import student as student
from alpa_explore.course.ask import task as task
from alpa_explore.course.guessing import guess as guess
from alpa_explore.course.guessing import league as league
