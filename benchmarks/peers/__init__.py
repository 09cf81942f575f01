"""Programs of rivals, each run with the Python of its own environment; they print JSON."""
