"""The command line `tampu`.

`commands/` says what can be typed and imports typer only. `acts/` does it, and is imported when a
command runs. `show/` is pure: from values to JSON and to tables.
"""
