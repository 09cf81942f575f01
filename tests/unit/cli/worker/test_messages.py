"""Messages from a worker process to its supervisor arrive whole or not at all."""

import os
from collections.abc import Iterator

import pytest

from tampu.cli.signals import ExitReason
from tampu.cli.worker.messages import (
    PIPES_VARIABLE,
    ProcessHeartbeat,
    ProcessMessage,
    ProcessStarted,
    ProcessStopping,
    SupervisorPipe,
    decode_message,
    encode_message,
)

LONG = ProcessStarted(
    version="1",
    tasks=["x" * 100] * 2000,  # more than a pipe holds
    queues={"q": 1},
    server="redis://x",
    dialect="Valkey 9.1",
    can=[],
    grace_s=25.0,
)


class OtherEnds:
    """The supervisor's ends of the pipes."""

    def __init__(self) -> None:
        self._life = os.pipe()
        self._messages = os.pipe()
        self.variable = f"{self._life[0]},{self._messages[1]}"
        self._data = b""

    def read(self) -> list[ProcessMessage | None]:
        """All whole messages so far."""
        os.set_blocking(self._messages[0], False)
        try:
            while found := os.read(self._messages[0], 65_536):
                self._data += found
        except BlockingIOError:
            pass
        return [decode_message(line) for line in self._data.split(b"\n")[:-1]]

    def stop_reading(self) -> None:
        os.close(self._messages[0])
        self._messages = (-1, self._messages[1])

    def close(self) -> None:
        for end in (*self._life, *self._messages):
            if end >= 0:
                os.close(end)


@pytest.fixture
def ends() -> Iterator[OtherEnds]:
    opened = OtherEnds()
    yield opened
    opened.close()


@pytest.fixture
def pipe(ends: OtherEnds, monkeypatch: pytest.MonkeyPatch) -> SupervisorPipe:
    monkeypatch.setenv(PIPES_VARIABLE, ends.variable)
    found = SupervisorPipe.from_environment()
    assert found is not None
    assert PIPES_VARIABLE not in os.environ, "its own children would take it for theirs"
    return found


@pytest.mark.parametrize(
    "message", [LONG, ProcessHeartbeat(3, 0.5), ProcessStopping(ExitReason.RECYCLED)]
)
def test_a_message_is_one_line(message: ProcessMessage) -> None:
    line = encode_message(message)
    assert line.count(b"\n") == 1
    assert decode_message(line) == message


@pytest.mark.parametrize(
    "line", [b"", b"{", b'{"type":"Other"}', b"\xff", b'{"type":"ProcessHeartbeat"}']
)
def test_a_line_that_is_not_a_message_is_ignored(line: bytes) -> None:
    assert decode_message(line) is None


def test_a_process_that_a_user_started_has_no_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PIPES_VARIABLE, raising=False)
    assert SupervisorPipe.from_environment() is None


def test_the_rest_of_a_long_message_is_sent_with_the_next_ones(
    ends: OtherEnds, pipe: SupervisorPipe
) -> None:
    pipe.send(LONG)
    messages = ends.read()
    for number in range(10):
        pipe.send(ProcessHeartbeat(number, 0.0))
        messages = ends.read()
    assert messages == [LONG, *(ProcessHeartbeat(number, 0.0) for number in range(10))]


def test_a_supervisor_that_does_not_read_does_no_harm(
    ends: OtherEnds, pipe: SupervisorPipe
) -> None:
    for _ in range(5000):
        pipe.send(ProcessHeartbeat(1, 0.5))
    assert set(ends.read()) == {ProcessHeartbeat(1, 0.5)}
    ends.stop_reading()
    pipe.send(ProcessHeartbeat(1, 0.5))
