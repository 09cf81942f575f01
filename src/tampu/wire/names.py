"""The rules for names: of queues, jobs, schedules, scheduled tasks and their prefixes."""

import re
import warnings
from typing import Final

from tampu.errors import OptionError

MAX_QUEUE_NAME_BYTES: Final = 128
MAX_JOB_ID_BYTES: Final = 512
MAX_JOB_NAME_BYTES: Final = 256
MAX_SCHEDULE_KEY_BYTES: Final = 1024
MAX_TASK_ID_BYTES: Final = 256
MAX_PREFIX_BYTES: Final = 256
FLOW_MARK: Final = "~"
"""Follows the id of a flow in the ids of its jobs."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Braces would move the hash tag; glob characters would make a SCAN match other queues.
_NOT_IN_QUEUE_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\s{}*?\[\]]")
_NOT_BESIDE_A_TAG: Final = re.compile(r"[\x00-\x1f\x7f-\x9f{}]")
_PARTITION_NAME: Final = re.compile(r".+\.[0-9]{1,3}", re.DOTALL)
_SHOWN_CHARACTERS: Final = 80


def check_queue_name(name: str) -> str:
    """Return a valid queue name, or raise `OptionError`."""
    problem = (
        f"must be 1 to {MAX_QUEUE_NAME_BYTES} bytes of text without whitespace, "
        "control characters and any of { } * ? [ ]"
    )
    size = _size("queue", name, problem)
    if not 0 < size <= MAX_QUEUE_NAME_BYTES or _NOT_IN_QUEUE_NAME.search(name):
        raise _invalid("queue", name, problem)
    return name


def warn_if_reserved(name: str) -> None:
    """Warn the caller's caller about the name of a queue that a partition may have one day."""
    if _PARTITION_NAME.fullmatch(name):
        text = (
            f"queue {name!r}: names that end in a dot and a number below 1000 are reserved "
            "for partitions of a queue; choose another name"
        )
        warnings.warn(text, FutureWarning, stacklevel=3)


def check_name(option: str, given: str) -> str:
    """Return a valid name of a worker or group. The rules are those for queue names."""
    try:
        return check_queue_name(given)
    except OptionError as refusal:
        raise OptionError(option, refusal.given, refusal.problem) from None


def check_job_id(job_id: str) -> str:
    """Return a valid job id, or raise `OptionError`."""
    problem = f"must be 1 to {MAX_JOB_ID_BYTES} bytes of text, not blank, no control characters"
    size = _size("job_id", job_id, problem)
    if size > MAX_JOB_ID_BYTES or not job_id.strip() or _CONTROL.search(job_id):
        raise _invalid("job_id", job_id, problem)
    return job_id


def check_job_name(name: str) -> str:
    """Return a valid job name, or raise `OptionError`. It may be empty."""
    problem = f"must be text of at most {MAX_JOB_NAME_BYTES} bytes"
    if _size("name", name, problem) > MAX_JOB_NAME_BYTES:
        raise _invalid("name", name, problem)
    return name


def check_schedule_key(key: str) -> str:
    """Return a valid schedule key. Derived keys contain spaces, stars and colons."""
    problem = f"must be 1 to {MAX_SCHEDULE_KEY_BYTES} bytes of text without control characters"
    size = _size("key", key, problem)
    if not 0 < size <= MAX_SCHEDULE_KEY_BYTES or _CONTROL.search(key):
        raise _invalid("key", key, problem)
    return key


def check_task_id(option: str, given: str) -> str:
    """Return a valid task id. It becomes a hash tag, so it cannot contain braces."""
    problem = (
        f"must be 1 to {MAX_TASK_ID_BYTES} bytes of text, not blank, "
        "without control characters and braces"
    )
    size = _size(option, given, problem)
    if size > MAX_TASK_ID_BYTES or not given.strip() or _NOT_BESIDE_A_TAG.search(given):
        raise _invalid(option, given, problem)
    return given


def check_prefix(prefix: str) -> str:
    """Return a valid key prefix, or raise `OptionError`. A hash tag follows it."""
    problem = f"must be 1 to {MAX_PREFIX_BYTES} bytes of text without control characters and braces"
    size = _size("prefix", prefix, problem)
    if not 0 < size <= MAX_PREFIX_BYTES or _NOT_BESIDE_A_TAG.search(prefix):
        raise _invalid("prefix", prefix, problem)
    return prefix


def _size(option: str, given: str, problem: str) -> int:
    """The size of the text in UTF-8. Lone surrogates are refused."""
    try:
        return len(given.encode())
    except (AttributeError, UnicodeEncodeError):
        raise _invalid(option, given, problem) from None


def _invalid(option: str, given: object, problem: str) -> OptionError:
    if isinstance(given, str) and len(given) > _SHOWN_CHARACTERS:
        given = given[:_SHOWN_CHARACTERS] + "…"
    return OptionError(option, given, problem)
