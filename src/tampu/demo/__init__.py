"""The program that `tampu demo` runs."""
