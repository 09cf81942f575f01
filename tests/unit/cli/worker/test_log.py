"""The log of `tampu worker`."""

import json
import logging
import os
import sys

import pytest

from tampu.cli.worker.log import JsonFormatter, LogFormat, LogLevel, TextFormatter, set_up_log


def format_record(name: str, message: str, **fields: object) -> str:
    record = logging.makeLogRecord(
        {"name": name, "levelname": "INFO", "msg": message, "created": 0.0123, **fields}
    )
    return TextFormatter().format(record)


def test_a_record_is_one_line_with_time_level_process_and_logger() -> None:
    line = format_record("tampu.worker", "job x was buried", job_id="x", payload="secret")
    assert line == f"1970-01-01T00:00:00.012Z INFO {os.getpid()} tampu.worker: job x was buried"


def test_a_record_that_a_handler_logs_ends_with_its_job() -> None:
    job = {"job_id": "j1", "job_name": "gr\x1beet", "attempt": 2, "queue": "emails"}
    line = format_record("shop", "hello", **job)
    assert line.endswith("shop: hello [job=j1 gr\\u001beet attempt=2 queue=emails]")
    line = format_record("shop", "hello", **job, trace_id="ab")
    assert line.endswith(" attempt=2 queue=emails trace_id=ab]")
    assert format_record("shop", "hello", job_id="of the shop").endswith("shop: hello")


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


def test_json_is_one_object_a_line_with_the_facts_of_the_record() -> None:
    record = logging.makeLogRecord(
        {
            "name": "tampu.consumer.reporter",
            "levelname": "WARNING",
            "msg": "job %s\nfailed",
            "args": ("x",),
            "created": 0.0123,
            "exc_text": "Traceback ...",
            "job_id": "x",
            "attempt": 2,
            "reason": object,
        }
    )
    line = JsonFormatter().format(record)
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.012Z",
        "level": "warning",
        "pid": os.getpid(),
        "logger": "tampu.consumer.reporter",
        "message": "job x\nfailed",
        "job_id": "x",
        "attempt": 2,
        "reason": str(object),
        "traceback": "Traceback ...",
    }


def test_colours_mark_the_level_and_the_last_line_of_a_traceback() -> None:
    text = 'Traceback (most recent call last):\n  File "shop.py"\nValueError: no'
    fields = {"levelname": "ERROR", "msg": "failed", "exc_text": text}
    head, *trace = TextFormatter(color=True).format(logging.makeLogRecord(fields)).splitlines()
    assert " \x1b[31mERROR\x1b[0m " in head
    assert trace[1] == '    \x1b[36m  File "shop.py"\x1b[0m'
    assert trace[2] == "    \x1b[31mValueError: no\x1b[0m"


@pytest.mark.parametrize(
    ("is_terminal", "asked", "environment", "colours"),
    [
        (True, True, {}, True),
        (False, True, {}, False),
        (True, False, {}, False),
        (True, True, {"NO_COLOR": "1"}, False),
    ],
)
def test_only_a_terminal_gets_colours(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,  # noqa: FBT001 - a parameter of pytest
    asked: bool,  # noqa: FBT001
    environment: dict[str, str],
    colours: bool,  # noqa: FBT001
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        set_up_log(LogLevel.info, LogFormat.text, color=asked)
        logging.getLogger("shop").error("failed")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert ("\x1b[31m" in capsys.readouterr().err) is colours
