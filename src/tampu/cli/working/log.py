"""The log of a worker: one line a record, on standard error."""

import logging
import os
from datetime import UTC, datetime
from typing import Final

from tampu.cli.show.text import stamp
from tampu.cli.visible import visible

_PLAIN: Final = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Lines(logging.Formatter):
    """When, how grave, which process and part, what; the fields of tampu's records behind it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in it."""
        when = stamp(datetime.fromtimestamp(record.created, UTC))
        said = f"{when} {record.levelname} {os.getpid()} {record.name}: {record.getMessage()}"
        if record.name.split(".")[0] == "tampu":  # others may put anything there
            fields = {name: each for name, each in vars(record).items() if name not in _PLAIN}
            said += "".join(f" {name}={_shown(each)}" for name, each in fields.items())
        if record.exc_info:
            said += " | " + self.formatException(record.exc_info)
        return _in_one_line(said)


def set_up_log(level: str) -> None:
    """Have all loggers of the process write to standard error, from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _shown(value: object) -> str:
    text = str(value)
    return repr(text) if " " in text or not text else text


def _in_one_line(text: str) -> str:
    return visible(" | ".join(part for part in map(str.rstrip, text.splitlines()) if part))
