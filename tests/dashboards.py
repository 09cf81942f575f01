"""Queues with a past, for tests and pictures of the dashboard."""

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser

import httpx
from msgspec.msgpack import encode

from tampu.job import Job
from tampu.metrics.history import Span, bucket_of
from tampu.outcome import Unrecoverable
from tampu.queue import Queue
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.wire.history import (
    GAUGES_FIELD,
    TASK_PREFIX,
    Gauges,
    PackedFigures,
    PackedGauges,
)
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.waiting import wait_until

HOSTILE = (
    "<script>alert(1)</script>",
    "\"onmouseover='alert(1)'",
    "line\u2028separator",
    "\u202ertl\u2067marks",
    "{{ 7 * 7 }}",
)
"""Texts that would do harm on a page that does not escape them."""

Visit = Callable[..., httpx.AsyncClient]
"""Opens a dashboard, and returns a client to ask it with."""

_random = random.Random(7)  # noqa: S311 - the same past at every run


async def seed_history(
    lane: Lane, keys: QueueKeys, tasks: Mapping[str, float], *, spans: Sequence[Span] = tuple(Span)
) -> None:
    """A past with a daily rhythm: about so many jobs of each task a minute."""
    now_s = await server_time_ms(lane) // 1000
    for span in spans:
        last = now_s // span.step_s
        for number in range(last - span.steps + 1, last + 1):
            rhythm = 1 + 0.5 * math.sin(number * span.step_s / 86_400 * 2 * math.pi)
            noise = 1 + 0.12 * math.sin(number * 0.35) + _random.uniform(-0.08, 0.08)
            fields = {
                TASK_PREFIX + name.encode(): encode(
                    _figures(a_minute * rhythm * noise * span.step_s / 60, slow=place)
                )
                for place, (name, a_minute) in enumerate(tasks.items())
            }
            waiting = max(0, round(300 * (rhythm * noise - 0.8)))
            gauges = Gauges(waiting=waiting, active=8, oldest_ms=waiting * 40)
            fields[GAUGES_FIELD] = encode(PackedGauges(gauges, gauges))
            flat = [part for pair in fields.items() for part in pair]
            await lane.call("HSET", keys.history(span.step_s, number), *flat)
    for name in tasks:
        await lane.call("HSET", keys.totals, TASK_PREFIX + name.encode(), encode(PackedFigures()))


def _figures(count: float, *, slow: int) -> PackedFigures:
    done = max(0, round(count))
    failed = round(done * _random.uniform(0, 0.03 + 0.05 * (slow % 3)))
    run: dict[int, int] = {}
    wait: dict[int, int] = {}
    for _ in range(40):
        weight = max(1, done // 40)
        ran = bucket_of(_random.lognormvariate(math.log(20_000 * (slow + 1)), 0.9))
        run[ran] = run.get(ran, 0) + weight
        waited = bucket_of(_random.lognormvariate(math.log(6_000), 1.3))
        wait[waited] = wait.get(waited, 0) + weight
    return PackedFigures(
        done=done,
        failed=failed,
        retried=failed,
        run_us=done * 20_000,
        wait_us=done * 6_000,
        run=[part for pair in sorted(run.items()) for part in pair],
        wait=[part for pair in sorted(wait.items()) for part in pair],
    )


class Elements(HTMLParser):
    """The start tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(html: str) -> None:
    """No script but our files, no handler, no style of its own, and no link that leaves."""
    for tag, attributes in Elements(html).found:
        assert tag not in {"style", "iframe", "object", "embed", "base"}
        if tag == "script":
            assert (attributes.get("src") or "").startswith("static/")
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", (tag, value)
            if name in {"href", "src", "action"}:
                assert not re.match(r"[a-z]+:|/", value or ""), (tag, value)


# --- asking and acting --------------------------------------------------------------------------

SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


async def act(client: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    """Send a form as a script does."""
    headers = SAME_ORIGIN | {"accept": "application/json"}
    return await client.post(path, data=fields, headers=headers)


async def bury(url: str, queue: Queue, *payloads: object, name: str = "send") -> list[str]:
    """Dead letters with these payloads; returns their ids, oldest first."""
    before = (await queue.counts()).dead
    await queue.add_each(name, payloads)

    async def fail(job: Job) -> None:
        given = job.data.get("n", "") if isinstance(job.data, dict) else ""
        raise Unrecoverable(f"cannot send {given}")

    async def are_dead() -> bool:
        counts = await queue.counts()
        return counts.dead >= before + len(payloads) and not counts.waiting + counts.active

    worker = Worker(queue.name, fail, url, concurrency=1)
    await worker.start()
    try:
        await wait_until(are_dead, within=60, sentence="the jobs are dead letters")
    finally:
        await worker.stop()
    return [letter.dead_id for letter in await queue.dead.peek(1000)][before:]
