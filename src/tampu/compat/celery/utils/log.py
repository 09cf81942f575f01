"""Loggers of tasks."""

import logging

__all__ = ["get_task_logger"]


def get_task_logger(name: str) -> logging.Logger:
    """A logger with this name; tampu's records tell which job they belong to."""
    return logging.getLogger(name)
