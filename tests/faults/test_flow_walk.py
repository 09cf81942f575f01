"""A gate under thousands of random steps, each followed by a look at all of it."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from tampu import Queue
from tampu.errors import CommandRefused
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.scripts import script
from tampu.wire.extras import decode_extras
from tampu.wire.keys import QueueKeys
from tampu.wire.lines import parse_line
from tests.faults.conftest import QUEUE
from tests.faults.flow_jobs import FlowJobs, declare_shared
from tests.gates import GROUP, ManualGate, TakenJob, assert_empty, look_at_gate
from tests.servers import RunningServer
from tests.waiting import wait_until

KEYS = QueueKeys(QUEUE)
STEPS = int(os.environ.get("TAMPU_FAULTS_STEPS", "400"))  # `make faults`: more
CONSUMERS = (b"t-1", b"t-2", b"t-3")


@pytest.fixture
async def gate(queue: Queue, server: Server, running: RunningServer) -> AsyncIterator[ManualGate]:
    with running.admin() as admin:
        async with await Lane.open(server, KEYS.stream) as lane:
            declare_shared(admin, KEYS)
            made = ManualGate(queue, lane, admin, KEYS)
            await made.open()
            yield made


class Walk:
    """Does at random what workers, producers, users and peers do."""

    def __init__(self, gate: ManualGate, rng: Random) -> None:
        self.gate, self.rng = gate, rng
        self.jobs = FlowJobs(rng, tenants=rng.choice((2, 5, 30)))
        self.most = rng.choice((2, 3, 10))  # so many are settled at once
        self.held: list[TakenJob] = []
        self.added: set[str] = set()
        self.steps: list[Callable[[], Awaitable[object]]] = []
        self.steps += [self.add, self.want, self.read, self.settle, self.run_again, self.close]
        self.steps += [self.lose_to_a_peer, self.gate.admit, self.cancel, self.read, self.settle]

    async def go(self, steps: int, check: Callable[[], object]) -> None:
        await self.add()
        for _ in range(steps):
            await self.rng.choice(self.steps)()
            check()

    async def add(self) -> None:
        count = self.rng.choice((1, 5, 20))
        added = await self.gate.queue.add_many([self.jobs.make() for _ in range(count)])
        self.added |= {job.id for job in added}

    async def want(self) -> None:
        await self.gate.want(self.rng.randrange(20), consumer=self.rng.choice(CONSUMERS))

    async def read(self) -> None:
        count = self.rng.randrange(1, 20)
        self.held += self.gate.read(count, consumer=self.rng.choice(CONSUMERS))

    async def settle(self) -> None:
        done = self._some()
        assert await self.gate.settle(done) == len(done)
        if self.rng.random() < 0.3:
            assert await self.gate.settle(done) == 0

    async def run_again(self) -> None:
        for job in self._some(2):
            assert await self.gate.run_again(job) == b"1"
            assert await self.gate.run_again(job) == b"0"

    async def close(self) -> None:
        for job in self._some(1):
            resources = parse_line(line_of(job)).resources
            if resources:
                closes = "|".join(resources[: self.rng.randrange(1, 4)]).encode()
                wait_ms = self.rng.randrange(1, 40)
                assert await self.gate.run_again(job, wait_ms=wait_ms, closes=closes) == b"1"
            else:
                await self.gate.settle([job])

    async def lose_to_a_peer(self) -> None:
        """Somebody settles entries who knows nothing of the gate, and the audit finds out."""
        ids = [job.entry_id for job in self._some(3)]
        if ids:
            self.gate.admin.xack(KEYS.stream, GROUP, *ids)
            self.gate.admin.xdel(KEYS.stream, *ids)
        assert await self.gate.audit() <= len(ids)

    async def cancel(self) -> None:
        found = self.rng.sample(sorted(self.added), min(3, len(self.added)))
        await self.gate.queue.cancel_many(found)

    async def end(self) -> None:
        """Settle all that there is."""

        async def is_over() -> bool:
            for consumer in CONSUMERS:
                await self.gate.want(100, consumer=consumer)
            self.held += self.gate.read()
            await self.gate.settle(self._some(len(self.held)))
            lined = look_at_gate(self.gate.admin, KEYS).lined
            return lined + int(self.gate.admin.xlen(KEYS.stream)) == 0

        await wait_until(is_over, within=60, sentence="every job has passed and is settled")

    def _some(self, most: int = 0) -> list[TakenJob]:
        self.rng.shuffle(self.held)
        count = min(most or self.most, len(self.held))
        taken, self.held = self.held[:count], self.held[count:]
        return taken


def line_of(job: TakenJob) -> str:
    flat = dict(zip(job.flat[::2], job.flat[1::2], strict=True))
    return decode_extras(flat.get(b"x")).line or "5"


@pytest.mark.every_server
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.timeout(60 + STEPS // 10)
async def test_nothing_is_lost_and_nothing_held_for_ever(gate: ManualGate, seed: int) -> None:
    walk = Walk(gate, Random(seed))  # noqa: S311 - steps
    await walk.go(STEPS, gate.sound)
    await walk.end()
    assert_empty(gate.admin, KEYS)


BREAKS = {
    "nothing is let go": ("gate.let_go(settled)\n", "\n"),
    "a turn is not passed on": ("if r.waits and r.more > 0 then wake(r, 1) end", ""),
    "waiting lines are not woken": (
        "if r.more > 0 then wake(r, count) else",
        "if r.more <= 0 then",
    ),
    "a line that waits alone is not woken": (
        "list[count + 1], list[count + 2] = at, is_start",
        "local _ = at, is_start",
    ),
    "too much is freed": ("runs = math.max(0, runs - freed[name])", "runs = 0"),
    "the rest of a name is forgotten": ("line .. '|' .. name or line, tag", "line, tag"),
    "a line that comes up has no turn": (
        "if call('RPUSH', LINE .. line, unpack(members)) == #members then",
        "if call('RPUSH', LINE .. line, unpack(members)) == 0 then",
    ),
    "a slot is counted twice": (
        "r.runs = r.runs + count",
        "r.runs = r.runs + count + (count > 1 and 1 or 0)",
    ),
    "no limit is full": (
        "local more, class = r.limit > 0 and r.limit - r.runs or ANY",
        "local more, class = r.limit > 0 and 1 + r.limit - r.runs or ANY",
    ),
    "no wakeup is set": ("alarms[#alarms + 1] = r.name", "alarms[#alarms] = nil"),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_gate_that_is_broken_on_purpose_is_found_out(
    gate: ManualGate, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    good, bad = BREAKS[name]
    changed = 0
    for each in script._scripts:
        if good in each._rest:
            monkeypatch.setattr(each, "_rest", each._rest.replace(good, bad))
            changed += 1
    assert changed, "the scripts have no such text any more"
    try:
        for each in script._scripts:
            each._compose()
        assert await finds_problem(gate)
    finally:
        monkeypatch.undo()
        for each in script._scripts:
            each._compose()


async def finds_problem(gate: ManualGate) -> bool:
    """Whether a look at the gate finds a problem within so many steps."""
    found: list[str] = []

    def note() -> None:
        state = look_at_gate(gate.admin, KEYS)
        found.extend(state.problems + ["gone"] * state.gone)

    for seed in range(1, 60):
        gate.admin.flushall()
        declare_shared(gate.admin, KEYS)
        await gate.open()
        walk = Walk(gate, Random(seed))  # noqa: S311 - steps
        walk.steps.remove(walk.lose_to_a_peer)  # the audit mends some of it
        with suppress(CommandRefused):  # what is left makes no sense to a script either
            await walk.go(300, note)
        if found:
            return True
    return False
