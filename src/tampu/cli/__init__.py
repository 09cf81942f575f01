"""The command line `tampu`, one module for each group of commands.

`main` has the table of commands and imports a command's module only when it runs.
"""
