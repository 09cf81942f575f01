"""All scenarios of one peer, on servers of its own; each bounded in jobs and in time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final

import redis

from benchmarks.latency import due_times
from benchmarks.peers import asked
from benchmarks.peers.home import Home
from benchmarks.peers.score import Cell, Scenario
from benchmarks.peers.side import PeerFailed, ProducerSide, WorkerSide
from tests.servers import RunningServer

ROUNDS: Final = 3
ENOUGH_S: Final = 6.0  # no further round once they have taken so long

ADDS: Final = 5_000
ADD_LIMIT_S: Final = 2.0
WAITING: Final = 100_000
A_CALL: Final = 1_000
FILL_LIMIT_S: Final = 8.0
CONSUME_LIMIT_S: Final = 8.0
QUIET_S: Final = 3.0  # a worker that notes nothing for so long has no more to run

START_LIMIT_S: Final = 20.0
WARM_UP: Final = 3
SAMPLES: Final = 25
SAMPLES_LIMIT_S: Final = 8.0
ARRIVAL_LIMIT_S: Final = 10.0

DELAYED: Final = 200
FIRST_DUE_S: Final = 1.0  # by then the slowest one has added them all

_pauses: Final = Random(1)  # noqa: S311 - spreads samples, guards nothing


@dataclass(frozen=True, slots=True)
class _Site:
    """A fresh server, and what the sides are told of it."""

    server: RunningServer
    home: Home
    folder: Path

    def producer(self, scenario: str = "") -> ProducerSide:
        return ProducerSide(self.home, self._surroundings(scenario))

    def worker(self, scenario: str) -> WorkerSide:
        return WorkerSide(self.home, self._surroundings(scenario))

    def _surroundings(self, scenario: str) -> dict[str, str]:
        notes = str(self.folder / "notes")
        return {"PEER_URL": self.server.url, "PEER_NOTES": notes, "PEER_SCENARIO": scenario}

    def used(self) -> int:
        """Bytes of the server's memory."""
        with self.server.admin() as admin:
            return int(admin.info("memory")["used_memory"])

    def cpu_s(self) -> float:
        """Processor time of the server, all its threads."""
        with self.server.admin() as admin:
            told: dict[str, float] = admin.info("cpu")
        return told["used_cpu_user"] + told["used_cpu_sys"]


@contextmanager
def _site(binary: Path, home: Home) -> Iterator[_Site]:
    with RunningServer(binary) as server, TemporaryDirectory(prefix="peer-") as folder:
        yield _Site(server, home, Path(folder))


Part = Callable[[Path, Home], dict[Scenario, Cell]]


def measured(binary: Path, home: Home) -> dict[Scenario, Cell]:
    """Every scenario; a part that fails leaves cells that say why."""
    parts: dict[Part, tuple[Scenario, ...]] = {
        _adds: (Scenario.ADD,),
        _fills: (Scenario.ADD_MANY, Scenario.MEMORY, Scenario.CONSUME, Scenario.CPU),
        _dispatch: (Scenario.DISPATCH,),
        _lateness: (Scenario.LATENESS,),
        _results: (Scenario.RESULT,),
    }
    cells: dict[Scenario, Cell] = {}
    for part, scenarios in parts.items():
        try:
            cells |= part(binary, home)
        except (PeerFailed, redis.RedisError) as error:
            cells |= {scenario: Cell(why=str(error)) for scenario in scenarios}
    return cells


def _adds(binary: Path, home: Home) -> dict[Scenario, Cell]:
    with _site(binary, home) as site, site.producer() as producer:
        producer.ask(asked.ONCE)
        told = [producer.ask(asked.ADD, jobs=ADDS, limit_s=ADD_LIMIT_S) for _ in range(ROUNDS)]
    rates = tuple(each["jobs"] / each["s"] for each in told)
    return {Scenario.ADD: Cell(rates, of=f"{told[0]['jobs']} jobs")}


@dataclass(frozen=True, slots=True)
class _Emptied:
    """A queue that was filled and emptied."""

    filled: int
    add_per_s: float
    bytes_each: float
    run: int
    run_per_s: float
    cpu_s: float  # for 100 000 jobs


def _fills(binary: Path, home: Home) -> dict[Scenario, Cell]:
    began = monotonic()
    rounds: list[_Emptied] = []
    while len(rounds) < ROUNDS and (not rounds or monotonic() - began < ENOUGH_S):
        with _site(binary, home) as site:
            rounds.append(_emptied(site))
    last = rounds[-1]
    filled, run = f"{last.filled} jobs", f"{last.run} of {last.filled} jobs"
    return {
        Scenario.ADD_MANY: Cell(tuple(each.add_per_s for each in rounds), of=filled),
        Scenario.MEMORY: Cell(tuple(each.bytes_each for each in rounds), of=filled),
        Scenario.CONSUME: Cell(tuple(each.run_per_s for each in rounds), of=run),
        Scenario.CPU: Cell(tuple(each.cpu_s for each in rounds), of=run),
    }


def _emptied(site: _Site) -> _Emptied:
    empty = site.used()
    with site.producer() as producer:
        added = producer.ask(asked.ADD_MANY, jobs=WAITING, a_call=A_CALL, limit_s=FILL_LIMIT_S)
        producer.end()
    filled = int(added["jobs"])
    waiting = site.used()
    before_s = site.cpu_s()
    with site.worker(asked.CONSUME) as worker:
        first = last = worker.note(START_LIMIT_S)
        if first is None or last is None:
            raise worker.failure("ran nothing")
        until = monotonic() + CONSUME_LIMIT_S
        while last.what < filled and monotonic() < until:
            note = worker.note(QUIET_S)
            if note is None:
                break
            last = note if note.what > last.what else last
        server_s = site.cpu_s() - before_s
    run = last.what - first.what
    if run <= 0:
        raise worker.failure(f"ran less than {asked.NOTE_EVERY} jobs")
    return _Emptied(
        filled=filled,
        add_per_s=added["jobs"] / added["s"],
        bytes_each=(waiting - empty) / filled,
        run=int(last.what),
        run_per_s=run / (last.at - first.at),
        cpu_s=100_000 * (last.cpu_s - first.cpu_s + server_s) / run,
    )


def _dispatch(binary: Path, home: Home) -> dict[Scenario, Cell]:
    with _site(binary, home) as site:
        with site.worker(asked.DISPATCH) as worker, site.producer() as producer:
            _ready(producer, worker)

            def once() -> float:
                at = producer.ask(asked.ONCE)["at"]
                note = worker.note(ARRIVAL_LIMIT_S)
                if note is None:
                    raise worker.failure(f"ran no job in {ARRIVAL_LIMIT_S:g} s")
                return 1000 * (note.at - float(at))

            return {Scenario.DISPATCH: _sampled(once)}


def _results(binary: Path, home: Home) -> dict[Scenario, Cell]:
    with _site(binary, home) as site:
        with site.worker(asked.RESULT) as worker, site.producer(asked.RESULT) as producer:
            _ready(producer, worker)
            return {Scenario.RESULT: _sampled(lambda: float(producer.ask(asked.WAIT)["ms"]))}


def _lateness(binary: Path, home: Home) -> dict[Scenario, Cell]:
    with _site(binary, home) as site:
        with site.worker(asked.LATENESS) as worker, site.producer(asked.LATENESS) as producer:
            _warm_delay(producer, worker)
            producer.ask(asked.DELAY, due=due_times(DELAYED, after_s=FIRST_DUE_S))
            late: list[float] = []
            while len(late) < DELAYED:
                note = worker.note(ARRIVAL_LIMIT_S)
                if note is None:
                    raise worker.failure(f"ran {len(late)} of {DELAYED} delayed jobs")
                late.append(1000 * (note.at - note.what))
    return {Scenario.LATENESS: Cell((median(late),), of=f"{DELAYED} jobs")}


def _ready(producer: ProducerSide, worker: WorkerSide) -> None:
    """Wait until the worker runs jobs."""
    producer.ask(asked.ONCE)
    if worker.note(START_LIMIT_S) is None:
        raise worker.failure("ran nothing")


def _warm_delay(producer: ProducerSide, worker: WorkerSide) -> None:
    producer.ask(asked.DELAY, due=due_times(1))
    if worker.note(START_LIMIT_S) is None:
        raise worker.failure("ran no delayed job")


def _sampled(once: Callable[[], float]) -> Cell:
    """One after another, so that the worker is idle, behind some that warm up."""
    for _ in range(WARM_UP):
        once()
    until = monotonic() + SAMPLES_LIMIT_S
    taken: list[float] = []
    while len(taken) < SAMPLES and (not taken or monotonic() < until):
        sleep(pause_s(_pauses))
        taken.append(once())
    return Cell((median(taken),), of=f"{len(taken)} samples")


def pause_s(random: Random) -> float:
    """How long the worker is left idle before a sample.

    Of a chance length, up to more than the half second after which some look for jobs: a job must
    not always come right after a look.
    """
    return random.uniform(0.01, 0.6)
