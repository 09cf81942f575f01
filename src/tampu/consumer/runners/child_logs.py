"""Log records of a child process, which its parent handles as if they were its own.

In the child, one handler takes the records of all loggers, as text, and sends them. They keep their
logger, level, time, place in the code, and what was passed as `extra`.
"""

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from tampu.wire.fields import cut_text, cut_text_front

MAX_TEXT_BYTES: Final = 64 * 1024
"""The most of a message, a traceback or another text that is sent."""
Plain: TypeAlias = str | int | float | bool | None
_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_tracebacks: Final = logging.Formatter()


class LogLevels(Struct, frozen=True):
    """The levels of a process: of each logger that has one ("" is the root), and of `disable`."""

    by_logger: dict[str, int]
    disabled: int


class ChildLog(Struct, frozen=True, tag=True):
    """One log record: its attributes, with the message as text."""

    name: str
    attributes: dict[str, Plain]
    extra: dict[str, Plain]


def levels_now() -> LogLevels:
    """The levels of this process."""
    loggers = {"": logging.root, **_loggers()}
    levels = {name: logger.level for name, logger in loggers.items() if logger.level}
    return LogLevels(levels, logging.root.manager.disable)


def send_logs(send: Callable[[ChildLog], None], levels: LogLevels) -> None:
    """Send the records of all loggers, and do nothing else with them.

    The parent has the handlers, also those that a module adds when it is imported. Call this again
    after modules were imported.
    """
    for logger in _loggers().values():
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(levels.by_logger.get(logger.name, logging.NOTSET))
    for name, level in levels.by_logger.items():
        logging.getLogger(name).setLevel(level)
    logging.disable(levels.disabled)
    logging.root.handlers[:] = [_SendingHandler(send)]


def handle_log(log: ChildLog) -> None:
    """Pass a record to the handlers of this process, if its logger is enabled for its level."""
    record = logging.makeLogRecord(log.attributes | log.extra | {"name": log.name})
    logger = logging.getLogger(log.name)
    try:
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    except Exception:  # noqa: BLE001 - border: a filter is the user's code
        logging.Handler().handleError(record)


class _SendingHandler(logging.Handler):
    """Sends each record at once, so a child that dies loses none that were logged before.

    If the parent is slow to take them, the child waits.
    """

    def __init__(self, send: Callable[[ChildLog], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record. In a process without the pipe, such as a fork, print it."""
        try:
            self._send(_describe(record))
        except OSError:
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
        except Exception:  # noqa: BLE001 - border: it calls methods of the user's objects
            self.handleError(record)


def _describe(record: logging.LogRecord) -> ChildLog:
    attributes: dict[str, Plain] = {
        "msg": _text(record.getMessage()),
        "exc_text": _traceback_text(record),
        "stack_info": record.stack_info and _text(record.stack_info),
    }
    for name in _STANDARD - attributes.keys() - {"name", "args", "exc_info", "message", "asctime"}:
        attributes[name] = _plain(getattr(record, name, None))
    extra = {name: _plain(value) for name, value in vars(record).items() if name not in _STANDARD}
    return ChildLog(_text(record.name), attributes, extra)


def _traceback_text(record: logging.LogRecord) -> str | None:
    text = record.exc_text
    if not text and record.exc_info:
        text = _tracebacks.formatException(record.exc_info)
    return cut_text_front(text, MAX_TEXT_BYTES) if text else None


def _plain(value: object) -> Plain:
    """A value that can be sent: itself, or as text."""
    if value is None or type(value) in {bool, float}:
        return value  # type: ignore[return-value] # which it is
    if type(value) is int and value.bit_length() < 64:
        return value
    return _text(str(value))


def _text(text: str) -> str:
    return cut_text(text, MAX_TEXT_BYTES)


def _loggers() -> dict[str, logging.Logger]:
    """All loggers but the root."""
    known = logging.root.manager.loggerDict.items()
    return {name: logger for name, logger in known if isinstance(logger, logging.Logger)}
