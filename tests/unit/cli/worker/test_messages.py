"""Messages between a worker process and its supervisor arrive whole or not at all."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tampu.admin.metrics import MetricsPage
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
from tests.waiting import wait_until

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
        self._questions = os.pipe()
        self.variable = f"{self._life[0]},{self._messages[1]},{self._questions[0]}"
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

    def ask(self) -> None:
        os.write(self._questions[1], b"?")

    def stop_asking(self) -> None:
        os.close(self._questions[1])
        self._questions = (self._questions[0], -1)

    def stop_reading(self) -> None:
        os.close(self._messages[0])
        self._messages = (-1, self._messages[1])

    def close(self) -> None:
        for end in (*self._life, *self._messages, *self._questions):
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
    "message",
    [
        LONG,
        ProcessHeartbeat(3, 0.5),
        ProcessStopping(ExitReason.RECYCLED),
        MetricsPage("a 1\nb 2\n"),
    ],
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


async def test_the_rest_of_a_long_message_is_sent_as_soon_as_there_is_room(
    ends: OtherEnds, pipe: SupervisorPipe
) -> None:
    sent: list[ProcessMessage] = [LONG, *(ProcessHeartbeat(number, 0.0) for number in range(10))]
    for message in sent:
        pipe.send(message)
    await wait_until(lambda: ends.read() == sent, within=60, sentence="all messages arrive")


async def test_a_supervisor_that_does_not_read_does_no_harm(
    ends: OtherEnds, pipe: SupervisorPipe
) -> None:
    for _ in range(5000):
        pipe.send(ProcessHeartbeat(1, 0.5))
    assert set(ends.read()) == {ProcessHeartbeat(1, 0.5)}
    ends.stop_reading()
    pipe.send(ProcessHeartbeat(1, 0.5))


async def test_no_more_is_kept_for_a_supervisor_that_does_not_read_than_fits_into_memory(
    ends: OtherEnds, pipe: SupervisorPipe
) -> None:
    large = MetricsPage("x" * 5_000_000)
    for _ in range(10):
        pipe.send(large)
    last = ProcessHeartbeat(1, 0.5)

    def arrive() -> bool:
        pipe.send(last)
        return last in ends.read()

    await wait_until(arrive, within=60, sentence="there is room again")
    assert 3 <= ends.read().count(large) < 10


async def test_each_question_of_the_supervisor_is_heard_until_it_is_dead(
    ends: OtherEnds, pipe: SupervisorPipe
) -> None:
    heard: list[int] = []
    pipe.when_asked(lambda: heard.append(1))
    for count in (1, 2):
        ends.ask()
        await wait_until(lambda c=count: len(heard) == c, within=60, sentence="it is heard")  # type: ignore[misc]
    ends.stop_asking()
    await asyncio.sleep(0)
    assert len(heard) == 2
