"""The log of `tampu worker`: lines for people, or JSON for programs."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from tampu.cli.output import escape_controls
from tampu.cli.screen import iso_instant
from tampu.metrics.logs import JobLogFilter


class LogLevel(Enum):
    """The least severe records that are logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogFormat(Enum):
    """How records are written."""

    text = "text"
    json = "json"


_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN, _RED, _YELLOW, _CYAN = "\x1b[0m", "\x1b[31m", "\x1b[33m", "\x1b[36m"
_LEVEL_COLORS: Final = {"WARNING": _YELLOW, "ERROR": _RED, "CRITICAL": _RED}


class TextFormatter(logging.Formatter):
    """One line a record: time, level, process id, logger, message, and the job that logged it.

    A traceback follows indented.
    """

    def __init__(self, *, color: bool = False) -> None:
        super().__init__()
        self._color = color

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the lines of the traceback."""
        when = iso_instant(datetime.fromtimestamp(record.created, UTC))
        message = escape_controls(" | ".join(_lines(record.getMessage())))
        level = self._paint(record.levelname, _LEVEL_COLORS.get(record.levelname, ""))
        pid = record.process  # of a child process, if the record comes from one
        text = f"{when} {level} {pid} {record.name}: {message}{_job_text(record)}"
        trace = [escape_controls(line) for line in _lines(trace_of(self, record))]
        return text + "".join(
            f"\n    {self._paint(line, _trace_color(line, is_last=number == len(trace)))}"
            for number, line in enumerate(trace, 1)
        )

    def _paint(self, text: str, color: str) -> str:
        return f"{color}{text}{_PLAIN}" if self._color and color else text


class JsonFormatter(logging.Formatter):
    """One object a line, with the facts that a record has besides its text."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        own = {name: it for name, it in vars(record).items() if name not in _STANDARD}
        data: dict[str, object] = {
            "time": iso_instant(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
            **own,
        }
        if trace := trace_of(self, record):
            data["traceback"] = trace
        return json.dumps(data, default=str)


def trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of a record; empty if it has none."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""  # of a failed attempt: it may be from a child process


def _job_text(record: logging.LogRecord) -> str:
    """The job of a record that a handler has logged; ours have it in their text."""
    fields = vars(record)
    if not {"job_id", "job_name", "attempt"} <= fields.keys() or record.name.startswith("tampu."):
        return ""
    facts = [f"job={fields['job_id']} {fields['job_name']}", f"attempt={fields['attempt']}"]
    facts += [f"{name}={fields[name]}" for name in ("queue", "trace_id") if name in fields]
    return escape_controls(f" [{' '.join(facts)}]")


def _trace_color(line: str, *, is_last: bool) -> str:
    if is_last:
        return _RED
    return _CYAN if line.lstrip().startswith("File ") else ""


def _lines(text: str) -> list[str]:
    return [line for line in map(str.rstrip, text.splitlines()) if line]


def set_up_log(level: LogLevel, log_format: LogFormat, *, color: bool) -> None:
    """Make all loggers of the process write to standard error, from a level up.

    Colours only for a terminal, and not with NO_COLOR in the environment.
    """
    handler = logging.StreamHandler()
    handler.addFilter(JobLogFilter())
    paints = color and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    is_json = log_format is LogFormat.json
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter(color=paints))
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)
