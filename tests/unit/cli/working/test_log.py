"""A line for each record, whatever is in it."""

import logging
import sys

from tampu.cli.working.log import Lines


def line(name: str, message: str, **fields: object) -> str:
    record = logging.makeLogRecord(
        {"name": name, "levelname": "INFO", "msg": message, "created": 0.0123, **fields}
    )
    return Lines().format(record)


def test_fields_of_our_records_stand_behind_the_message() -> None:
    told = line("tampu.worker", "a job was buried", job_id="x", reason="no more", empty="")
    assert told.startswith("1970-01-01T00:00:00.012Z INFO ")
    assert told.endswith(" tampu.worker: a job was buried job_id=x reason='no more' empty=''")


def test_fields_of_others_are_their_own_business() -> None:
    assert line("shop", "sold", payload="secret").endswith(" shop: sold")
    assert line("tampus", "sold", payload="secret").endswith(" tampus: sold")


def test_a_record_is_one_line_also_with_a_traceback_or_control_characters() -> None:
    try:
        raise ValueError("first\nsecond")  # noqa: TRY301
    except ValueError:
        told = line("shop", "a\r\nb\x1b[31m", exc_info=sys.exc_info())
    assert len(told.splitlines()) == 1
    assert "a | b\\u001b[31m | Traceback" in told
    assert told.endswith("ValueError: first | second")
