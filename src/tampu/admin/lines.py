"""The jobs that wait in lines: page by page, by their rows, and which was added first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.admin.found import FoundJob, JobFinder, read_member
from tampu.admin.limits import key_of
from tampu.server.gates import members_of_line
from tampu.server.scripts.gate import LineState, list_lines
from tampu.util.clock import instant_if_any
from tampu.util.lifecycle import run_all
from tampu.wire.fields import decode_text

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

MOST_LINES: Final = 20_000
"""How many lines of a queue are looked through: as many as the jobs that one search looks at."""
_LINES_AT_A_TIME: Final = 100
_HEADS: Final = 100  # of lines that are asked for their oldest job
_CURSOR: Final = re.compile(r"[0-9]-[0-9a-f]{16}:[0-9]{1,9}")
_ROW: Final = re.compile(r"[0-9a-f]{16}:.{1,512}", re.DOTALL)


class LinedJob(Struct, frozen=True):
    """A job in a line, and the cursor of what comes after it; None if it cannot be decoded."""

    cursor: str
    job: FoundJob | None


class _Line(Struct, frozen=True):
    """A line with its place in the order of all lines: those with the highest priority first."""

    place: str
    state: LineState

    @property
    def name(self) -> bytes:
        return self.state.line


class LineReader:
    """Pages through the jobs in lines: by priority, then line by line, the next one first.

    Which lines there are is asked once. Jobs that move meanwhile may be missed.
    """

    def __init__(self, lane: Lane, keys: QueueKeys, *, key: str = "") -> None:
        self._lane, self._keys, self._key = lane, keys, key
        self._found: list[_Line] | None = None

    async def page(self, cursor: str, *, count: int) -> list[LinedJob]:
        """At least so many jobs after a cursor, or "" for the first; fewer if there are no more."""
        place, _, skip = cursor.partition(":")
        left = [each for each in await self._lines() if each.place >= place]
        jobs: list[LinedJob] = []
        while left and len(jobs) < count:
            batch, missing = list[tuple[_Line, int, int]](), count - len(jobs)
            for line in left[:_LINES_AT_A_TIME]:
                start = int(skip) if line.place == place else 0
                batch.append((line, start, missing))
                missing -= max(0, line.state.length - start)
                if missing <= 0:
                    break
            for part in await run_all(self._read(*each) for each in batch):
                jobs += part
            left = left[len(batch) :]
        return jobs

    async def _read(self, line: _Line, start: int, count: int) -> list[LinedJob]:
        members = await members_of_line(self._lane, self._keys, line.name, start=start, count=count)
        return [
            LinedJob(f"{line.place}:{number}", _job_of(line.name, member))
            for number, member in enumerate(members, start + 1)
        ]

    async def pick(self, rows: Sequence[str]) -> dict[str, FoundJob]:
        """The jobs of these rows that still wait in the same lines, by their rows."""
        wanted: dict[str, set[str]] = {}
        for row in rows:
            digest, _, job_id = row.partition(":")
            wanted.setdefault(digest, set()).add(job_id)
        finder, found = JobFinder(self._lane, self._keys, most=None), dict[str, FoundJob]()
        for line in await self._lines() if wanted else ():
            ids = wanted.get(digest_of(line.name))
            for job in (await finder.find_in_lines([line.state], ids)).values() if ids else ():
                found[row_of(job)] = job
        return found

    async def _lines(self) -> list[_Line]:
        if self._found is None:
            states = await list_lines(self._lane, self._keys, most=MOST_LINES)
            mine = [each for each in states if self._key in {"", key_of(decode_text(each.line))}]
            lines = (_Line(_place_of(each.line), each) for each in mine)
            self._found = sorted(lines, key=lambda line: line.place)
        return self._found


def digest_of(line: bytes) -> str:
    """A short name of a line: its own may have some thousand bytes."""
    return blake2b(line, digest_size=8).hexdigest()


def _place_of(line: bytes) -> str:
    level = line[:1]
    return f"{9 - int(level) if level.isdigit() else 9}-{digest_of(line)}"


def row_of(job: FoundJob) -> str:
    """What `LineReader.pick` finds a job in a line by."""
    return f"{digest_of(job.line)}:{job.id}"


def is_line_cursor(given: str) -> bool:
    """Whether a cursor of waiting jobs is one of those in lines."""
    return _CURSOR.fullmatch(given) is not None


def is_line_row(given: str) -> bool:
    """Whether a row of waiting jobs is one of those in lines."""
    return _ROW.fullmatch(given) is not None


def _job_of(line: bytes, member: bytes) -> FoundJob | None:
    job = read_member(member)
    return None if job is None else replace(job, line=line)


async def oldest_in_lines_ms(lane: Lane, keys: QueueKeys) -> int | None:
    """When the job was added that was added first, of those that are next in some 100 lines.

    A failed job counts from its last attempt. How long a job was delayed on purpose is not known
    any more, so it counts from when it was added, unless a schedule added it.
    """
    lines = (await list_lines(lane, keys, most=_HEADS))[:_HEADS]
    heads = await run_all(
        members_of_line(lane, keys, each.line, start=0, count=1) for each in lines
    )
    jobs = [read_member(member) for head in heads for member in head]
    times = [_came_ms(job) for job in jobs if job is not None]
    return min((each for each in times if each), default=None)


def _came_ms(job: FoundJob) -> int:
    """When a job came into its line, as far as it tells; 0 if it does not."""
    extras = job.extras
    times = (job.envelope.created_at_ms, extras.scheduled_at_ms or 0, *extras.failed_at_ms)
    return max(each if instant_if_any(each) is not None else 0 for each in times)
