"""Background loops: each with a start, a stop, and no end in between."""
