"""What a terminal would act on is shown instead."""

import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from tampu import DeadLetter, Failure
from tampu.cli.acts.events import event_line
from tampu.cli.show.plain import as_json
from tampu.cli.show.tables import letter_page, letters_table
from tampu.cli.visible import visible
from tampu.events import JobEvent

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
EVIL = "\x1b]0;mine\x07\x1b[2J\x9b31m\u2028\u202e"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain ä 漢 👩\u200d💻 a\xa0b", "plain ä 漢 👩\u200d💻 a\xa0b"),
        ("one\n\ttwo", "one\n\ttwo"),
        ("\x1b[2J", "\\u001b[2J"),
        ("\x9b31m\x7f\r", "\\u009b31m\\u007f\\u000d"),
        ("\u202eabc\u2069\u2028", "\\u202eabc\\u2069\\u2028"),
        ("\udcff", "\\udcff"),
    ],
)
def test_only_what_would_be_acted_on_is_escaped(given: str, shown: str) -> None:
    assert visible(given) == shown


def test_json_stays_what_it_was() -> None:
    told = as_json({"a": EVIL, "ä": [EVIL]})
    assert visible(told) == told
    assert json.loads(told) == {"a": EVIL, "ä": [EVIL]}
    assert as_json("ä", ascii_only=True) == '"\\u00e4"'


def test_nothing_that_a_job_holds_reaches_the_terminal_as_it_is() -> None:
    failure = Failure(error_type=EVIL, message=EVIL, traceback=f"first\n{EVIL}")
    letter = DeadLetter(
        dead_id="1-0",
        buried_at=NOW,
        reason=EVIL,
        detail=EVIL,
        attempt=1,
        name=EVIL,
        job_id=EVIL,
        data={EVIL: EVIL},
        raw=b"",
        failure=failure,
        worker=EVIL,
        source_id="0-1",
    )
    console = Console(width=400, markup=False, emoji=False)
    with console.capture() as printed:
        console.print(letters_table([letter], 1, NOW))
        console.print(letter_page(letter))
    assert visible(printed.get()) == printed.get()
    assert "\\u001b[2J" in printed.get()
    event = JobEvent(
        id="1-0",
        kind=EVIL,
        job_id=f"a\n{EVIL}",
        name=EVIL,
        at=NOW,
        attempt=None,
        fields={"reason": EVIL},
    )
    told = event_line(event)
    assert visible(told) == told
    assert "\n" not in told
