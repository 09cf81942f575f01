"""Measures one peer in every scenario, on fresh servers, with limits on jobs and time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Final

import redis

from benchmarks.measuring import due_times
from benchmarks.peers import protocol
from benchmarks.peers.comparison import Cell, Column, Scenario, failed_cells
from benchmarks.peers.environment import PeerEnvironment
from benchmarks.peers.processes import PeerFailed, ProducerProcess, WorkerProcess
from tests.servers import RunningServer

ROUNDS: Final = 3
ENOUGH_S: Final = 6.0  # start no further round after this time

ADDS: Final = 5_000
ADD_LIMIT_S: Final = 2.0
WAITING: Final = 100_000
JOBS_PER_CALL: Final = 1_000
FILL_LIMIT_S: Final = 8.0
CONSUME_LIMIT_S: Final = 8.0
QUIET_S: Final = 3.0  # a worker that writes no note for this long has no more jobs

START_LIMIT_S: Final = 20.0
WARM_UP: Final = 3
SAMPLES: Final = 25
SAMPLES_LIMIT_S: Final = 8.0
ARRIVAL_LIMIT_S: Final = 10.0

DELAYED: Final = 200
FIRST_DUE_S: Final = 1.0  # enough for the slowest peer to add all of them

_pauses: Final = Random(1)  # noqa: S311 - only spreads samples


@dataclass(frozen=True, slots=True)
class Setup:
    """A fresh server, and a peer that uses it."""

    server: RunningServer
    environment: PeerEnvironment
    folder: Path

    def producer(self, scenario: str = "") -> ProducerProcess:
        """The peer's producer, which has started."""
        return ProducerProcess(self.environment, self._variables(scenario))

    def worker(self, scenario: str) -> WorkerProcess:
        """The peer's worker, which has started."""
        return WorkerProcess(self.environment, self._variables(scenario))

    def _variables(self, scenario: str) -> dict[str, str]:
        notes = str(self.folder / "notes")
        return {"PEER_URL": self.server.url, "PEER_NOTES": notes, "PEER_SCENARIO": scenario}

    def used_bytes(self) -> int:
        """The memory that the server uses."""
        with self.server.admin() as admin:
            return int(admin.info("memory")["used_memory"])

    def cpu_s(self) -> float:
        """The processor time of the server, all threads together."""
        with self.server.admin() as admin:
            info: dict[str, float] = admin.info("cpu")
        return info["used_cpu_user"] + info["used_cpu_sys"]


@contextmanager
def set_up(binary: Path, environment: PeerEnvironment) -> Iterator[Setup]:
    """A fresh server for a peer; it ends with the block."""
    with RunningServer(binary) as server, TemporaryDirectory(prefix="peer-") as folder:
        yield Setup(server, environment, Path(folder))


Part = Callable[[Path, PeerEnvironment], dict[Column, Cell]]
"""Measures some columns."""


def measure(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    """Measure every scenario. The cells of a part that fails say why."""
    parts: dict[Part, tuple[Column, ...]] = {
        _measure_adding: (Scenario.ADD,),
        _measure_consuming: (
            Scenario.ADD_MANY,
            Scenario.MEMORY,
            Scenario.CONSUME,
            Scenario.CPU,
        ),
        _measure_dispatch: (Scenario.DISPATCH,),
        _measure_lateness: (Scenario.LATENESS,),
        _measure_results: (Scenario.RESULT,),
    }
    return measure_parts(parts, binary, environment)


def measure_parts(
    parts: Mapping[Part, tuple[Column, ...]], binary: Path, environment: PeerEnvironment
) -> dict[Column, Cell]:
    """Measure the columns of each part. If one fails, its cells say why."""
    cells: dict[Column, Cell] = {}
    for part, columns in parts.items():
        try:
            cells |= part(binary, environment)
        except (PeerFailed, redis.RedisError) as error:
            cells |= failed_cells(str(error), columns)
    return cells


def _measure_adding(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    with set_up(binary, environment) as setup, setup.producer() as producer:
        producer.request(protocol.ADD_ONE)
        answers = [
            producer.request(protocol.ADD, jobs=ADDS, limit_s=ADD_LIMIT_S) for _ in range(ROUNDS)
        ]
    rates = tuple(each["jobs"] / each["s"] for each in answers)
    return {Scenario.ADD: Cell(rates, of=f"{answers[0]['jobs']} jobs")}


@dataclass(frozen=True, slots=True)
class ConsumeRound:
    """One queue, filled and consumed."""

    filled: int
    add_per_s: float
    bytes_per_job: float
    run: int
    run_per_s: float
    cpu_s: float  # for 100 000 jobs
    server_us: float  # processor time of the server for one job

    @property
    def of(self) -> str:
        """How many jobs ran."""
        return f"{self.run} of {self.filled} jobs"


def _measure_consuming(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    began = monotonic()
    rounds: list[ConsumeRound] = []
    while len(rounds) < ROUNDS and (not rounds or monotonic() - began < ENOUGH_S):
        with set_up(binary, environment) as setup:
            rounds.append(fill_and_consume(setup, protocol.CONSUME))
    last = rounds[-1]
    filled, run = f"{last.filled} jobs", last.of
    return {
        Scenario.ADD_MANY: Cell(tuple(each.add_per_s for each in rounds), of=filled),
        Scenario.MEMORY: Cell(tuple(each.bytes_per_job for each in rounds), of=filled),
        Scenario.CONSUME: Cell(tuple(each.run_per_s for each in rounds), of=run),
        Scenario.CPU: Cell(tuple(each.cpu_s for each in rounds), of=run),
    }


def fill(setup: Setup, scenario: str, jobs: int = WAITING) -> dict[str, Any]:
    """Add so many jobs of a scenario, or as many as the time limit allows."""
    with setup.producer(scenario) as producer:
        added = producer.request(
            protocol.ADD_MANY, jobs=jobs, jobs_per_call=JOBS_PER_CALL, limit_s=FILL_LIMIT_S
        )
        producer.end()
    return added


def fill_and_consume(setup: Setup, scenario: str) -> ConsumeRound:
    """Fill a queue with jobs of a scenario, then run them for a limited time."""
    empty = setup.used_bytes()
    added = fill(setup, scenario)
    filled = int(added["jobs"])
    waiting = setup.used_bytes()
    before_s = setup.cpu_s()
    with setup.worker(scenario) as worker:
        first = last = worker.next_note(START_LIMIT_S)
        if first is None or last is None:
            raise worker.failure("ran nothing")
        until = monotonic() + CONSUME_LIMIT_S
        while last.value < filled and monotonic() < until:
            note = worker.next_note(QUIET_S)
            if note is None:
                break
            last = note if note.value > last.value else last
        server_s = setup.cpu_s() - before_s
    run = last.value - first.value
    if run <= 0:
        raise worker.failure(f"ran fewer than {protocol.NOTE_EVERY} jobs")
    return ConsumeRound(
        filled=filled,
        add_per_s=added["jobs"] / added["s"],
        bytes_per_job=(waiting - empty) / filled,
        run=int(last.value),
        run_per_s=run / (last.at - first.at),
        cpu_s=100_000 * (last.cpu_s - first.cpu_s + server_s) / run,
        server_us=1e6 * server_s / run,
    )


def _measure_dispatch(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    with set_up(binary, environment) as setup:
        with setup.worker(protocol.DISPATCH) as worker, setup.producer() as producer:
            _wait_for_first_job(producer, worker)

            def time_one_ms() -> float:
                at = producer.request(protocol.ADD_ONE)["at"]
                note = worker.next_note(ARRIVAL_LIMIT_S)
                if note is None:
                    raise worker.failure(f"ran no job in {ARRIVAL_LIMIT_S:g} s")
                return 1000 * (note.at - float(at))

            return {Scenario.DISPATCH: _take_samples(time_one_ms)}


def _measure_results(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    with set_up(binary, environment) as setup:
        with (
            setup.worker(protocol.RESULT) as worker,
            setup.producer(protocol.RESULT) as producer,
        ):
            _wait_for_first_job(producer, worker)

            def time_one_ms() -> float:
                return float(producer.request(protocol.WAIT_FOR_RESULT)["ms"])

            return {Scenario.RESULT: _take_samples(time_one_ms)}


def _measure_lateness(binary: Path, environment: PeerEnvironment) -> dict[Column, Cell]:
    with set_up(binary, environment) as setup:
        with (
            setup.worker(protocol.LATENESS) as worker,
            setup.producer(protocol.LATENESS) as producer,
        ):
            _wait_for_first_delayed_job(producer, worker)
            producer.request(protocol.ADD_DELAYED, due=due_times(DELAYED, after_s=FIRST_DUE_S))
            late: list[float] = []
            while len(late) < DELAYED:
                note = worker.next_note(ARRIVAL_LIMIT_S)
                if note is None:
                    raise worker.failure(f"ran {len(late)} of {DELAYED} delayed jobs")
                late.append(1000 * (note.at - note.value))
    return {Scenario.LATENESS: Cell((median(late),), of=f"{DELAYED} jobs")}


def _wait_for_first_job(producer: ProducerProcess, worker: WorkerProcess) -> None:
    """Wait until the worker runs jobs."""
    producer.request(protocol.ADD_ONE)
    if worker.next_note(START_LIMIT_S) is None:
        raise worker.failure("ran nothing")


def _wait_for_first_delayed_job(producer: ProducerProcess, worker: WorkerProcess) -> None:
    producer.request(protocol.ADD_DELAYED, due=due_times(1))
    if worker.next_note(START_LIMIT_S) is None:
        raise worker.failure("ran no delayed job")


def _take_samples(time_one_ms: Callable[[], float]) -> Cell:
    """Take samples one after another, so that the worker is idle, after some that only warm up."""
    for _ in range(WARM_UP):
        time_one_ms()
    until = monotonic() + SAMPLES_LIMIT_S
    taken: list[float] = []
    while len(taken) < SAMPLES and (not taken or monotonic() < until):
        sleep(pause_s(_pauses))
        taken.append(time_one_ms())
    return Cell((median(taken),), of=f"{len(taken)} samples")


def pause_s(random: Random) -> float:
    """How long the worker is idle before a sample.

    The length is random and can be longer than half a second, because some peers poll that often:
    a job must not always arrive right after a poll.
    """
    return random.uniform(0.01, 0.6)
