"""Dead letters in a table and on a page."""

from datetime import UTC, datetime, timedelta

from tampu import BuryReason, DeadLetter, Failure
from tampu.cli.dead import dead_page, dead_table
from tampu.cli.output import escape_controls
from tests.unit.cli.tables import print_view

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
EVIL = "\x1b]0;mine\x07\x1b[2J\x9b31m\u2028\u202e"


def dead_letter(number: int, **more: object) -> DeadLetter:
    facts = {
        "dead_id": f"179475114468{number}-0",
        "buried_at": NOW - timedelta(hours=2),
        "name": "send [bold]mail[/bold] to everybody who ever asked for it",
        "reason": BuryReason.RETRIES_EXHAUSTED,
        "detail": None,
        "failure": Failure("ValueError", "no such\naddress " * 20, "Traceback ...\n"),
        "attempt": 25,
        "worker": "t-x",
        "job_id": "j",
        "data": {"to": "ada"},
        "raw": b"",
        "source_id": "1794751144680-0",
    }
    return DeadLetter(**(facts | more))  # type: ignore[arg-type]


def test_the_table_keeps_ids_and_reasons_and_cuts_the_rest() -> None:
    odd = dead_letter(2, failure=None, detail="odd", reason="stalled", attempt=None, name="")
    lines = print_view(dead_table([dead_letter(1), odd], 7, NOW))
    assert lines[0].split() == ["Id", "Age", "Name", "Reason", "Attempts", "Error"]
    assert lines[1].startswith("1794751144681-0   2h  send [")
    assert "retries_exhausted        25  ValueErr" in lines[1]
    assert lines[2].split() == ["1794751144682-0", "2h", "stalled", "-", "odd"]
    assert lines[-1] == "2 of 7: 1 retries_exhausted, 1 stalled"


def test_a_table_without_dead_letters_is_a_sentence() -> None:
    assert print_view(dead_table([], 0, NOW)) == ["There are no dead letters."]
    assert print_view(dead_table([], 7, NOW)) == ["There are no more."]


def test_a_dead_letter_that_cannot_be_decoded_shows_its_size() -> None:
    lines = print_view(dead_page(dead_letter(1, job_id=None, raw=b"\xc1\xc1", failure=None)))
    assert "Data         cannot be decoded (2 bytes)" in lines


def test_nothing_in_a_dead_letter_can_control_the_terminal() -> None:
    failure = Failure(error_type=EVIL, message=EVIL, traceback=f"first\n{EVIL}")
    texts = dict.fromkeys(("reason", "detail", "name", "job_id", "worker"), EVIL)
    letter = dead_letter(1, data={EVIL: EVIL}, failure=failure, **texts)
    printed = "\n".join(
        [*print_view(dead_table([letter], 1, NOW), 400), *print_view(dead_page(letter), 400)]
    )
    assert escape_controls(printed) == printed
    assert "\\u001b[2J" in printed
