"""The log of `tampu worker`."""

import logging
import os
import sys

from tampu.cli.worker.command import LogFormatter


def format_record(name: str, message: str, **fields: object) -> str:
    record = logging.makeLogRecord(
        {"name": name, "levelname": "INFO", "msg": message, "created": 0.0123, **fields}
    )
    return LogFormatter().format(record)


def test_a_record_is_one_line_with_time_level_process_and_logger() -> None:
    line = format_record("tampu.worker", "job x was buried", job_id="x", payload="secret")
    assert line == f"1970-01-01T00:00:00.012Z INFO {os.getpid()} tampu.worker: job x was buried"


def test_a_message_with_line_ends_or_control_characters_stays_one_line() -> None:
    line = format_record("shop", "a\r\nb\x1b[31m\n2026-01-01T00:00:00.000Z INFO 1 tampu: forged")
    assert len(line.splitlines()) == 1
    assert ": a | b\\u001b[31m | 2026" in line


def test_a_traceback_follows_the_record_in_indented_lines() -> None:
    try:
        raise ValueError("first\nsecond\x1b")  # noqa: TRY301
    except ValueError:
        head, *trace = format_record("shop", "failed", exc_info=sys.exc_info()).splitlines()
    assert head.endswith(" shop: failed")
    assert trace[0] == "    Traceback (most recent call last):"
    assert trace[-2:] == ["    ValueError: first", "    second\\u001b"]


def test_a_traceback_that_is_only_text_follows_too() -> None:
    text = "Traceback (most recent call last):\n  ...\nValueError: from a child process"
    head, *trace = format_record("tampu.consumer.reporter", "failed", exc_text=text).splitlines()
    assert head.endswith(": failed")
    assert trace == [f"    {line}" for line in text.splitlines()]
