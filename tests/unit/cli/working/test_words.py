"""What a process says is heard as it was said; what is none of it is not heard."""

import pytest

from tampu.cli.working.words import (
    Beat,
    Leaving,
    Reason,
    Started,
    Word,
    decode_word,
    encode_word,
)

STARTED = Started(
    version="1",
    tasks=["a"],
    queues={"q": 1},
    server="redis://x",
    dialect="Valkey 9.1",
    can=[],
    grace_s=25.0,
)


@pytest.mark.parametrize("word", [STARTED, Beat(3, 0.5), Leaving(Reason.RECYCLED)])
def test_words_travel_in_a_line_each(word: Word) -> None:
    line = encode_word(word)
    assert line.count(b"\n") == 1
    assert decode_word(line) == word


@pytest.mark.parametrize("line", [b"", b"{", b'{"type":"Other"}', b"\xff", b'{"type":"Beat"}'])
def test_what_nobody_says_is_not_heard(line: bytes) -> None:
    assert decode_word(line) is None
