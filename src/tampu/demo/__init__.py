"""The program that `tampu demo` runs, and what is counted of it."""
