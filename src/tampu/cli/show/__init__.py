"""From values to what is printed: JSON for programs, tables for people. Pure."""
