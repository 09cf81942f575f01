"""Text from jobs cannot control the terminal."""

import pytest

from tampu.cli.output import escape_controls


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
def test_only_control_characters_are_escaped(given: str, shown: str) -> None:
    assert escape_controls(given) == shown
