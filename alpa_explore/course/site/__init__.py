"""The course as a website: every lesson run once, its figures live, its exercises as quizzes; no kernel, no network.

build       runs the lessons and writes the folder, whole or not at all
execute     a notebook to its cells with their outputs, in a kernel of its own
saved_plan  in that kernel: the plan of an explorer as data, in place of the widget
page        a lesson to an HTML page: parts, navigation, figures, quizzes; a saved plan in place of its explorer; the
            picture of the first page
outputs     the outputs of a cell as HTML
what_if     the tables from which a page prices layouts by itself; `what_if.md` and `what_if.js` are that page
reference   commands, functions and files as a text, from parsers and docstrings; `examples.toml` has the examples
words       the words of the glossary, linked where a page says them first; what is searched, and what a slide says
markdown    text cells as HTML; formulas as MathML, which browsers draw without a library
tuning      limits

`site.css` and `site.js` are the style and the script of every page; the script draws figures, searches and shows
slides, and `grading.js` grades quizzes; `font/` has the font of formulas. plotly.js lies beside the pages once; those
that have a figure load it.
"""
