"""Loggers of tasks."""

import logging

from tampu.compat.celery._absent import refuse_imports

__all__ = ["get_logger", "get_task_logger"]

__getattr__ = refuse_imports("celery.utils.log")


def get_task_logger(name: str) -> logging.Logger:
    """A logger with this name; tampu's records tell which job they belong to."""
    return logging.getLogger(name)


get_logger = get_task_logger
