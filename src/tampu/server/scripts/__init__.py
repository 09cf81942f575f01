"""Typed calls of the Lua scripts, one for each file in `lua/`."""
