"""What is said to the process above arrives whole, or not at all."""

import os
from collections.abc import Iterator

import pytest

from tampu.cli.working.parent import MARKER, Parent
from tampu.cli.working.words import Beat, Started, Word, decode_word

LONG = Started(
    version="1",
    tasks=["x" * 100] * 2000,  # more than a pipe holds
    queues={},
    server="",
    dialect="",
    can=[],
    grace_s=1.0,
)


class Above:
    """The other ends of the pipes."""

    def __init__(self) -> None:
        self._life = os.pipe()
        self._words = os.pipe()
        self.marker = f"{self._life[0]},{self._words[1]}"
        self.heard = b""

    def listen(self) -> list[Word | None]:
        """All whole lines so far."""
        os.set_blocking(self._words[0], False)
        try:
            while found := os.read(self._words[0], 65_536):
                self.heard += found
        except BlockingIOError:
            pass
        return [decode_word(line) for line in self.heard.split(b"\n")[:-1]]

    def hang_up(self) -> None:
        os.close(self._words[0])
        self._words = (-1, self._words[1])

    def close(self) -> None:
        for end in (*self._life, *self._words):
            if end >= 0:
                os.close(end)


@pytest.fixture
def above() -> Iterator[Above]:
    made = Above()
    yield made
    made.close()


@pytest.fixture
def parent(above: Above, monkeypatch: pytest.MonkeyPatch) -> Parent:
    monkeypatch.setenv(MARKER, above.marker)
    found = Parent.found()
    assert found is not None
    assert MARKER not in os.environ, "what it starts would take itself for a worker process"
    return found


def test_who_was_started_by_a_user_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MARKER, raising=False)
    assert Parent.found() is None


def test_what_does_not_fit_at_once_goes_out_with_what_follows(above: Above, parent: Parent) -> None:
    parent.tell(LONG)
    words: list[Word | None] = above.listen()
    for number in range(10):
        parent.tell(Beat(number, 0.0))
        words = above.listen()
    assert words == [LONG, *(Beat(number, 0.0) for number in range(10))]


def test_nobody_who_listens_is_no_trouble(above: Above, parent: Parent) -> None:
    for _ in range(5000):
        parent.tell(Beat(1, 0.5))
    assert set(above.listen()) == {Beat(1, 0.5)}
    above.hang_up()
    parent.tell(Beat(1, 0.5))
