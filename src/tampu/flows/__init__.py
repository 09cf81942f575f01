"""Flows: graphs of jobs, started together, with results that travel along their edges."""
