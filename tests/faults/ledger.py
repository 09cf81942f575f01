"""What really happened, kept outside the system under test, and what follows from it.

Each line is one write to a file opened for appending: no other comes between, and it outlives a
SIGKILL of its writer. Jobs are known by a tag that travels as their data, since a producer whose
call was cut off knows no id.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from tampu import Job


class Kind(Enum):
    """What a line says."""

    SENT = "sent"  # a producer is about to add
    ADDED = "added"  # its add returned
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"  # the handler raised, so that the job is retried or buried
    FAULT = "fault"  # a worker was killed or stopped: what it held may run again


class Line(NamedTuple):
    """One line; the clock is the machine's, the same for all its processes."""

    kind: Kind
    tag: str
    job_id: str
    worker: str
    at: float


class Ledger:
    """One file for all who write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._seen = 0
        self._counts: Counter[Kind] = Counter()

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)

    def sent(self, tag: object) -> None:
        self._write(Kind.SENT, tag)

    def added(self, tag: object) -> None:
        self._write(Kind.ADDED, tag)

    def fault(self, worker: str) -> None:
        self._write(Kind.FAULT, "-", worker=worker)

    def started(self, job: Job[Any], worker: str) -> None:
        self._write(Kind.STARTED, job.data, job_id=job.id, worker=worker)

    def done(self, job: Job[Any], worker: str) -> None:
        self._write(Kind.DONE, job.data, job_id=job.id, worker=worker)

    def failed(self, job: Job[Any], worker: str) -> None:
        self._write(Kind.FAILED, job.data, job_id=job.id, worker=worker)

    def lines(self) -> list[Line]:
        """All lines, in the order in which they were written."""
        return [_line(text.decode()) for text in _whole(self.path.read_bytes()).splitlines()]

    def count(self, kind: Kind) -> int:
        """How many lines of a kind there are; reads only what is new."""
        with self.path.open("rb") as file:
            file.seek(self._seen)
            new = _whole(file.read())
        self._seen += len(new)
        self._counts.update(Kind(text.split(b" ", 1)[0].decode()) for text in new.splitlines())
        return self._counts[kind]

    def _write(self, kind: Kind, tag: object, *, job_id: str = "-", worker: str = "-") -> None:
        os.write(self._file, f"{kind.value} {tag} {job_id} {worker} {monotonic():.6f}\n".encode())


def _whole(read: bytes) -> bytes:
    """Without a line at the end that is being written."""
    return read[: read.rfind(b"\n") + 1]


def _line(text: str) -> Line:
    kind, tag, job_id, worker, at = text.split(" ")
    return Line(Kind(kind), tag, job_id, worker, float(at))


@dataclass(frozen=True, slots=True)
class Report:
    """What is wrong, by tag, and how often jobs ran."""

    lost: set[str]  # the add returned; neither done nor a dead letter
    ghosts: set[str]  # run, and nobody added it
    added_twice: set[str]  # several jobs from one add
    buried_twice: set[str]
    unexplained: set[str]  # run again although its worker lived and its handler had not failed
    repeated: set[str]  # run again because of a fault of its worker
    runs: Counter[str]

    def assert_sound(self, *, unexplained: int = 0) -> None:
        """Nothing lost, nothing made up, and no second run but for so many."""
        assert not self.lost, f"{len(self.lost)} lost: {_some(self.lost)}"
        assert not self.ghosts, f"{len(self.ghosts)} from nowhere: {_some(self.ghosts)}"
        assert not self.added_twice, f"added twice: {_some(self.added_twice)}"
        assert not self.buried_twice, f"buried twice: {_some(self.buried_twice)}"
        found = len(self.unexplained)
        assert found <= unexplained, f"{found} run again: {_some(self.unexplained)}"


def check(lines: Iterable[Line], dead: Iterable[object] = ()) -> Report:
    """Judge a run that has come to rest; `dead` are the tags of all dead letters."""
    by_kind: dict[Kind, set[str]] = defaultdict(set)
    ids: dict[str, set[str]] = defaultdict(set)
    story: dict[str, list[Line]] = defaultdict(list)
    faults: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        by_kind[line.kind].add(line.tag)
        if line.kind is Kind.FAULT:
            faults[line.worker].append(line.at)
        elif line.job_id != "-":
            story[line.tag].append(line)
            ids[line.tag].add(line.job_id)
    buried = Counter(map(str, dead))
    repeats = {tag: _repeats(told, faults) for tag, told in story.items()}
    return Report(
        lost=by_kind[Kind.ADDED] - by_kind[Kind.DONE] - buried.keys(),
        ghosts=(by_kind[Kind.STARTED] | buried.keys()) - by_kind[Kind.SENT],
        added_twice={tag for tag, seen in ids.items() if len(seen) > 1},
        buried_twice={tag for tag, times in buried.items() if times > 1},
        unexplained={tag for tag, found in repeats.items() if False in found},
        repeated={tag for tag, found in repeats.items() if True in found},
        runs=Counter({tag: _starts(told) for tag, told in story.items()}),
    )


def _repeats(story: list[Line], faults: dict[str, list[float]]) -> list[bool]:
    """For each run behind the first that is no retry: whether a fault explains it."""
    found: list[bool] = []
    last: Line | None = None
    failed = False
    for line in story:
        if line.kind is Kind.STARTED:
            if last is not None and not failed:
                times = faults.get(last.worker, ())
                found.append(any(last.at <= at <= line.at for at in times))
            last, failed = line, False
        elif line.kind is Kind.FAILED and last is not None and line.worker == last.worker:
            failed = True
    return found


def _starts(story: list[Line]) -> int:
    return sum(line.kind is Kind.STARTED for line in story)


def _some(tags: set[str]) -> list[str]:
    return sorted(tags)[:10]
