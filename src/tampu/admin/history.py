"""Reads the history of a queue, and measures what goes into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tampu.admin.lines import oldest_in_lines_ms
from tampu.errors import AccessDenied, CommandRefused, DecodeError, OptionError
from tampu.metrics.history import (
    Bucket,
    FailureGroup,
    Figures,
    History,
    Mark,
    ProcessInfo,
    RunningJob,
    Totals,
)
from tampu.server.inspection import groups_of, info_of
from tampu.server.protocol import pack
from tampu.server.scripts.history import read_hashes
from tampu.server.streams import consumers, entries_from, server_time_ms, values_of
from tampu.util.clock import instant
from tampu.wire.fields import decode_text
from tampu.wire.history import (
    DEAD_PREFIX,
    FIRES_FIELD,
    GAUGES_FIELD,
    MISSED_FIELD,
    TASK_PREFIX,
    UNKNOWN_FIELD,
    Gauges,
    PackedProcess,
    decode_failures,
    decode_figures,
    decode_gauges,
    decode_instants,
    decode_process,
)
from tampu.wire.keys import MARKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tampu.metrics.history import Span
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

MAX_MARKS = 1000
_MAX_MARK_CHARACTERS = 200


# --- what happened ------------------------------------------------------------------------------


async def read_history(lane: Lane, keys: QueueKeys, span: Span) -> History:
    """The steps of a queue in a span that ends now, oldest first."""
    number = await server_time_ms(lane) // 1000 // span.step_s
    return await read_steps(lane, keys, span, numbers=range(number - span.steps + 1, number + 1))


async def read_steps(lane: Lane, keys: QueueKeys, span: Span, *, numbers: range) -> History:
    """Chosen steps of a queue, by their numbers since 1970."""
    hashes = await read_hashes(lane, [keys.history(span.step_s, each) for each in numbers])
    buckets = [
        read_bucket(fields, at_ms=number * span.step_s * 1000)
        for number, fields in zip(numbers, hashes, strict=True)
    ]
    return History(keys.name, span.step_s, buckets)


def read_bucket(fields: dict[bytes, bytes], *, at_ms: int) -> Bucket:
    """One step; fields that cannot be read are left out."""
    packed = fields.get(GAUGES_FIELD)
    try:
        gauges = None if packed is None else decode_gauges(packed)
    except DecodeError:
        gauges = None
    missed, fires = (_instants(fields.get(field)) for field in (MISSED_FIELD, FIRES_FIELD))
    bucket = Bucket(at_ms, _tasks(fields), missed=missed, fires=fires)
    return bucket if gauges is None else replace(bucket, last=gauges.last, highest=gauges.highest)


async def read_totals(lane: Lane, keys: QueueKeys) -> Totals:
    """The figures of each task since recording began, without the last ten seconds."""
    (fields,) = await read_hashes(lane, [keys.totals])
    dead = {
        decode_text(field.removeprefix(DEAD_PREFIX)): int(number)
        for field, number in fields.items()
        if field.startswith(DEAD_PREFIX)
    }
    unknown, missed = (int(fields.get(field, 0)) for field in (UNKNOWN_FIELD, MISSED_FIELD))
    return Totals(_tasks(fields), unknown, dead, missed)


async def read_unknown(lane: Lane, keys: QueueKeys) -> int:
    """How many jobs were settled, but may be missing in the counts; `Totals.unknown` alone."""
    found: Any = await lane.call("HGET", keys.totals, UNKNOWN_FIELD)
    return int(found or 0)


async def task_names(lane: Lane, keys: QueueKeys) -> list[str]:
    """The tasks of which something was recorded, in the order of their names."""
    fields: Any = await lane.call("HKEYS", keys.totals)
    names = [each for each in fields if each.startswith(TASK_PREFIX)]
    return sorted(decode_text(each[len(TASK_PREFIX) :]) for each in names)


def _instants(packed: bytes | None) -> dict[str, int]:
    try:
        return {} if packed is None else decode_instants(packed)
    except DecodeError:
        return {}


def _tasks(fields: dict[bytes, bytes]) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for field, packed in fields.items():
        if field.startswith(TASK_PREFIX):
            try:
                figures = Figures.unpack(decode_figures(packed))
            except DecodeError:
                continue
            found[decode_text(field[len(TASK_PREFIX) :])] = figures
    return found


async def read_fires(
    lane: Lane, keys: QueueKeys, minutes: Sequence[int]
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """How often each schedule fired, and how often it missed, in each of some minutes."""
    fields = (FIRES_FIELD, MISSED_FIELD)
    calls = [
        lane.send(pack("HMGET", keys.history(60, number), *fields), repeatable=True)
        for number in minutes
    ]
    replies: list[Any] = [await call for call in calls]
    return [(_instants(fires), _instants(missed)) for fires, missed in replies]


async def failure_groups(lane: Lane, keys: QueueKeys) -> list[FailureGroup]:
    """The groups of failures of a queue, those that occurred last first; 200 at most."""
    (fields,) = await read_hashes(lane, [keys.failures])
    groups = []
    for fingerprint, packed in fields.items():
        try:
            seen = decode_failures(packed)
        except DecodeError:
            continue
        groups.append(
            FailureGroup(
                fingerprint=decode_text(fingerprint),
                error_type=seen.error_type,
                message=seen.message,
                count=seen.count,
                first_at=instant(seen.first_ms),
                last_at=instant(seen.last_ms),
                task=seen.task,
                job_id=seen.job_id,
                traceback=seen.traceback,
            )
        )
    return sorted(groups, key=lambda each: each.last_at, reverse=True)


# --- what is now --------------------------------------------------------------------------------


async def measure_gauges(
    lane: Lane, keys: QueueKeys, group: bytes, *, since: Gauges | None = None
) -> Gauges:
    """The state of a queue now, without the server's memory.

    Of a queue that is as empty as it was, only the sizes are asked for; the rest is as in `since`.
    """
    commands = [
        ("XLEN", keys.stream),
        ("ZCARD", keys.delayed),
        ("XLEN", keys.dead),
        ("HGET", keys.gate, "waiting"),
    ]
    calls = [lane.send(pack(*command), repeatable=True) for command in commands]
    length, delayed, dead, lined = [int(await call or 0) for call in calls]  # type: ignore[arg-type]
    if since is not None and not length + lined:
        sizes = Gauges(delayed=delayed, dead=dead, memory_bytes=since.memory_bytes)
        nothing = replace(sizes, workers=since.workers, slots=since.slots, busy=since.busy)
        if since == nothing:
            return since
    groups = await groups_of(lane, keys.stream)
    own = next((each for each in groups if each.name == group), None)
    pending, last_id = (0, None) if own is None else (own.pending, own.last_id)
    in_stream = max(0, length - pending)
    processes = await _processes(lane, keys, group)
    return Gauges(
        waiting=in_stream + lined,
        active=pending,
        delayed=delayed,
        dead=dead,
        oldest_ms=max(
            await _oldest_ms(lane, keys, last_id) if in_stream else 0,
            await _oldest_lined_ms(lane, keys) if lined else 0,
        ),
        workers=len(processes),
        slots=sum(each.slots for _, each in processes),
        busy=sum(each.busy for _, each in processes),
        memory_bytes=0 if since is None else since.memory_bytes,
        in_lines=lined,
    )


async def _oldest_ms(lane: Lane, keys: QueueKeys, last_id: bytes | None) -> int:
    start = b"-" if last_id is None else b"(" + last_id
    page = await entries_from(lane, keys.stream, start=start, count=1)
    if not page:
        return 0
    return max(0, await server_time_ms(lane) - int(page[0][0].partition(b"-")[0]))


async def _oldest_lined_ms(lane: Lane, keys: QueueKeys) -> int:
    added_ms = await oldest_in_lines_ms(lane, keys)
    return 0 if added_ms is None else max(0, await server_time_ms(lane) - added_ms)


async def read_memory(lane: Lane) -> int:
    """The memory that the server uses, in bytes; 0 if it does not tell."""
    try:
        return int((await info_of(lane, "memory")).get("used_memory", "0"))
    except (CommandRefused, AccessDenied, ValueError):
        return 0


async def processes_of(lane: Lane, keys: QueueKeys, group: bytes = b"default") -> list[ProcessInfo]:
    """The processes of our workers, as of their last reports."""
    return [_process_info(*each) for each in await _processes(lane, keys, group)]


async def _processes(lane: Lane, keys: QueueKeys, group: bytes) -> list[tuple[str, PackedProcess]]:
    names = [each.name for each in await consumers(lane, keys.stream, group)]
    raw = await values_of(lane, [keys.process(name) for name in names]) if names else []
    found = []
    for name, packed in zip(names, raw, strict=True):
        try:
            if packed is not None:
                found.append((decode_text(name), decode_process(packed)))
        except DecodeError:
            continue
    return found


def _process_info(worker: str, packed: PackedProcess) -> ProcessInfo:
    running = [
        RunningJob(
            id=each.id,
            name=each.name,
            attempt=each.attempt,
            started_at=instant(each.started_ms),
        )
        for each in packed.running
    ]
    return ProcessInfo(
        worker=worker,
        at=instant(packed.at_ms),
        host=packed.host,
        pid=packed.pid,
        rss_bytes=packed.rss_bytes,
        cpu=packed.cpu,
        lag_ms=packed.lag_ms,
        slots=packed.slots,
        busy=packed.busy,
        running=running,
        version=packed.version,
        python=packed.python,
        app_version=packed.app_version,
    )


# --- marks --------------------------------------------------------------------------------------


async def add_mark(lane: Lane, text: str) -> Mark:
    """Mark this moment in all charts; the lane must lead to `MARKS`."""
    if not text.strip() or len(text) > _MAX_MARK_CHARACTERS or not text.isprintable():
        problem = f"expected 1 to {_MAX_MARK_CHARACTERS} printable characters"
        raise OptionError("text", text[:_MAX_MARK_CHARACTERS], problem)
    command = ("XADD", MARKS, "MAXLEN", "~", MAX_MARKS, "*", "text", text)
    entry_id: Any = await lane.call(*command)
    return Mark(instant(int(entry_id.partition(b"-")[0])), text)


async def read_marks(lane: Lane, since_ms: int) -> list[Mark]:
    """The marks since an instant, oldest first; the lane must lead to `MARKS`."""
    page = await entries_from(lane, MARKS, start=b"%d" % since_ms, count=MAX_MARKS)
    return [
        Mark(instant(int(entry_id.partition(b"-")[0])), decode_text(fields[1]))
        for entry_id, fields in page
        if fields
    ]
