"""Measures one peer with priorities, rates, limits of concurrency and groups, on fresh servers.

What a peer does not have is not imitated: its cells say so.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic, sleep
from typing import Final

from benchmarks.peers import protocol
from benchmarks.peers.comparison import Cell, Column, FlowScenario, failed_cells
from benchmarks.peers.environment import PeerEnvironment
from benchmarks.peers.measure import (
    ARRIVAL_LIMIT_S,
    QUIET_S,
    SAMPLES_LIMIT_S,
    START_LIMIT_S,
    WARM_UP,
    Part,
    fill,
    fill_and_consume,
    measure_parts,
    set_up,
)
from benchmarks.peers.processes import Note, ProducerProcess, WorkerProcess

URGENT_JOBS: Final = 50
SETTLE_S: Final = 1.0  # the worker has as many jobs as it can hold
PAUSE_S: Final = (0.02, 0.2)  # between two urgent jobs
LEFT: Final = 1_000  # so many others must still wait after the last urgent job

RATED_JOBS: Final = 5_000
SKIPPED_S: Final = 1.0  # the start, where a peer may let pass more at once
RATED_S: Final = 10.0

_PRIORITIES: Final = (
    FlowScenario.PRIORITIES,
    FlowScenario.SERVER,
    FlowScenario.URGENT,
    FlowScenario.URGENT_WORST,
)
_RATES: Final = (FlowScenario.OPEN_RATE, FlowScenario.RATE_USED, FlowScenario.RATE_WORST)
_CONCURRENCY: Final = (FlowScenario.CONCURRENCY,)
MISSING: Final[Mapping[str, Mapping[str, tuple[FlowScenario, ...]]]] = {
    "bullmq": {"only BullMQ Pro limits concurrency by groups of jobs": _CONCURRENCY},
    "celery": {
        "Celery limits the rate of each worker, not of a queue": _RATES,
        "Celery has no limit of concurrency by argument": _CONCURRENCY,
    },
    "docket": {
        "docket has no priorities": _PRIORITIES,
        "docket has no groups": (FlowScenario.JOINS,),
    },
}
"""What peers do not have."""

_pauses: Final = Random(1)  # noqa: S311 - only spreads samples


def measure_flow(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    """Measure every scenario that the peer can run. The other cells say why it cannot."""
    missing: dict[Column, Cell] = {}
    for why, columns in MISSING.get(environment.peer.name, {}).items():
        missing |= failed_cells(why, columns)
    parts: dict[Part, tuple[Column, ...]] = {
        partial(_measure_consuming, protocol.CONSUME): (FlowScenario.PLAIN,),
        partial(_measure_consuming, protocol.PRIORITIES): _PRIORITIES[:2],
        _measure_urgent: _PRIORITIES[2:],
        partial(_measure_consuming, protocol.OPEN_RATE): _RATES[:1],
        _measure_rate: _RATES[1:],
        partial(_measure_consuming, protocol.CONCURRENCY): _CONCURRENCY,
        _measure_joins: (FlowScenario.JOINS,),
    }
    can = {part: columns for part, columns in parts.items() if columns[0] not in missing}
    return measure_parts(can, binary, environment) | missing


_PER_S: Final = {
    protocol.CONSUME: FlowScenario.PLAIN,
    protocol.PRIORITIES: FlowScenario.PRIORITIES,
    protocol.OPEN_RATE: FlowScenario.OPEN_RATE,
    protocol.CONCURRENCY: FlowScenario.CONCURRENCY,
}


def _measure_consuming(
    scenario: str, binary: Path, environment: PeerEnvironment
) -> dict[Column, Cell]:
    with set_up(binary, environment) as setup:
        taken = fill_and_consume(setup, scenario)
    cells: dict[Column, Cell] = {_PER_S[scenario]: Cell((taken.run_per_s,), of=taken.of)}
    if scenario == protocol.PRIORITIES:
        cells[FlowScenario.SERVER] = Cell((taken.server_us,), of=taken.of)
    return cells


class _Urgent:
    """Urgent jobs that are added one after another, behind many others."""

    def __init__(self, producer: ProducerProcess, worker: WorkerProcess) -> None:
        self._producer = producer
        self._worker = worker
        self.others = 0.0  # that have run

    def time_one_ms(self) -> float:
        """From the call of the producer until the handler runs."""
        at = self._producer.request(protocol.ADD_URGENT)["at"]
        note = self._next_note()
        if note is None:
            raise self._worker.failure(f"ran no urgent job in {ARRIVAL_LIMIT_S:g} s")
        return 1000 * (note.at - float(at))

    def _next_note(self) -> Note | None:
        until = monotonic() + ARRIVAL_LIMIT_S
        while (note := self._worker.next_note(max(0.0, until - monotonic()))) is not None:
            if note.value == 0:
                return note
            self.others = note.value
        return None


def _measure_urgent(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    with set_up(binary, environment) as setup:
        filled = int(fill(setup, protocol.OVERTAKE)["jobs"])
        with (
            setup.worker(protocol.OVERTAKE) as worker,
            setup.producer(protocol.OVERTAKE) as producer,
        ):
            if worker.next_note(START_LIMIT_S) is None:
                raise worker.failure("ran nothing")
            sleep(SETTLE_S)
            urgent = _Urgent(producer, worker)
            late_ms = _take_samples(urgent)
            if urgent.others > filled - LEFT:
                raise worker.failure("had no other jobs left")
    of = f"{len(late_ms)} jobs before {filled} others"
    return {
        FlowScenario.URGENT: Cell((median(late_ms),), of=of),
        FlowScenario.URGENT_WORST: Cell((max(late_ms),), of=of),
    }


def _take_samples(urgent: _Urgent) -> list[float]:
    for _ in range(WARM_UP):
        urgent.time_one_ms()
    until = monotonic() + SAMPLES_LIMIT_S
    taken: list[float] = []
    while len(taken) < URGENT_JOBS and (not taken or monotonic() < until):
        sleep(_pauses.uniform(*PAUSE_S))
        taken.append(urgent.time_one_ms())
    return taken


def _measure_rate(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    with set_up(binary, environment) as setup:
        fill(setup, protocol.RATE, RATED_JOBS)
        with setup.worker(protocol.RATE) as worker:
            starts = _take_starts(worker)
            first = starts[0] + SKIPPED_S
            in_time = sum(first <= start < first + RATED_S for start in starts)
            if not in_time:
                raise worker.failure(f"ran no jobs later than {SKIPPED_S:g} s")
    of = f"{in_time} jobs in {RATED_S:g} s"
    return {
        FlowScenario.RATE_USED: Cell((100 * in_time / (protocol.RATE_PER_S * RATED_S),), of=of),
        FlowScenario.RATE_WORST: Cell((most_in_window(starts, 1.0),), of=of),
    }


def _measure_joins(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    """From the first call that adds a group until the last join has run."""
    with (
        set_up(binary, environment) as setup,
        setup.worker(protocol.JOINS) as worker,
        setup.producer(protocol.JOINS) as producer,
    ):
        producer.request(protocol.ADD_GROUPS, groups=1, size=protocol.GROUP_SIZE)
        if worker.next_note(START_LIMIT_S) is None:
            raise worker.failure("joined nothing")
        sizes = {"groups": protocol.GROUPS, "size": protocol.GROUP_SIZE}
        began = float(producer.request(protocol.ADD_GROUPS, **sizes)["at"])
        notes = [worker.next_note(START_LIMIT_S) for _ in range(protocol.GROUPS)]
    if None in notes:
        raise worker.failure(f"joined fewer than {protocol.GROUPS} groups")
    last = max(note.at for note in notes if note is not None)
    of = f"{protocol.GROUPS} groups"
    return {FlowScenario.JOINS: Cell((protocol.GROUPS / (last - began),), of=of)}


def _take_starts(worker: WorkerProcess) -> list[float]:
    """When jobs began, from the first one until the end of what is measured."""
    note = worker.next_note(START_LIMIT_S)
    if note is None:
        raise worker.failure("ran nothing")
    starts = [note.at]
    until = note.at + SKIPPED_S + RATED_S
    while starts[-1] < until and (note := worker.next_note(QUIET_S)) is not None:
        starts.append(note.at)
    return sorted(starts)


def most_in_window(starts: list[float], length_s: float) -> int:
    """How many of the sorted starts are in the fullest window of this length."""
    oldest = most = 0
    for number, start in enumerate(starts):
        while starts[oldest] <= start - length_s:
            oldest += 1
        most = max(most, number - oldest + 1)
    return most
