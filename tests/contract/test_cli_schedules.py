"""`tampu schedule`, as users run it."""

import re
from datetime import UTC, datetime

from tampu import Cron, Every, Missed, Overlap, TimeWindow
from tests.contract.cli import tampu
from tests.contract.workers import QUEUE, Harness
from tests.servers import RunningServer

KEYS = [
    *("key", "name", "cron", "tz", "every_s", "explained", "next_at", "paused", "problem"),
    *("counts", "missed", "missed_max", "missed_grace_s", "missed_catch_up_s", "overlap"),
    *("window", "limit", "start", "end", "jitter_s", "attempts", "timeout_s", "data"),
]


LATER = datetime(2100, 1, 1, tzinfo=UTC)
CRON = Cron("0 9 * * 1-5", tz="Europe/Berlin")


async def test_schedules_are_listed_and_previewed(running: RunningServer, harness: Harness) -> None:
    url = running.url
    await harness.queue.schedules.add("digest", CRON, {"a": 1}, key="digest", overlap=Overlap.SKIP)
    await harness.queue.schedules.add(
        "late", CRON, key="late", missed=Missed.all(max=7), start=LATER
    )
    hours = TimeWindow(tz="UTC", days="mon-fri", segments=[("09:00", "17:00")])
    await harness.queue.schedules.add("tick", Every("90s"), timeout="5s", window=hours)
    listed = await tampu("schedule", "ls", QUEUE, url=url)
    assert listed.lines[0].split() == ["Key", "Job", "Next", "Fired", "Rule"]
    assert "0 9 * * 1-5 Europe/Berlin" in listed.out
    assert "every 1m30s" in listed.out
    assert max(map(len, listed.lines)) <= 80
    told = (await tampu("schedule", "ls", QUEUE, "--json", url=url)).json
    assert told["queue"] == QUEUE
    tick, digest, late = told["schedules"]
    assert [list(tick), list(digest), list(late)] == [KEYS, KEYS, KEYS]
    assert (digest["missed"], digest["missed_max"]) == ("skip", None)
    assert (late["missed"], late["missed_max"], late["missed_grace_s"]) == ("all", 7, 60)
    assert (tick["key"], tick["every_s"], tick["timeout_s"]) == ("tick::every:90000", 90, 5)
    assert (digest["cron"], digest["tz"], digest["overlap"]) == (CRON.text, CRON.tz, "skip")
    days = ["mon", "tue", "wed", "thu", "fri"]
    assert tick["window"] == {"tz": "UTC", "days": days, "segments": [["09:00", "17:00"]]}
    assert digest["window"] is None
    assert digest["counts"] == dict.fromkeys(
        ["fired", "missed", "overlapped", "outside", "paused"], 0
    )

    seen = (await tampu("schedule", "preview", QUEUE, "digest", "-n", "2", "--json", url=url)).json
    assert (list(seen), len(seen["instants"])) == (["queue", "key", "zone", "instants"], 2)
    assert seen["zone"] == "Europe/Berlin"
    local = await tampu("schedule", "preview", QUEUE, "digest", "-n", "2", url=url)
    for line in local.lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d 09:00:00\+0[12]:00 Europe/Berlin", line)
    utc = await tampu("schedule", "preview", QUEUE, tick["key"], "-n", "1", url=url)
    assert utc.lines[0].endswith("Z")
    near = await tampu("schedule", "preview", QUEUE, "digst", url=url)
    sentence = "tampu: Queue 'work' has no schedule 'digst'. Did you mean 'digest'?\n"
    assert (near.code, near.err) == (1, sentence)


async def test_a_preview_with_fewer_instants_than_asked_for_says_so(
    running: RunningServer, harness: Harness
) -> None:
    url = running.url
    await harness.queue.schedules.add("few", CRON, key="few", limit=2)
    few = await tampu("schedule", "preview", QUEUE, "few", "-n", "5", url=url)
    assert (few.code, len(few.lines)) == (0, 2)
    assert few.err.startswith("tampu: Only 2 of 5 instants: the schedule ends there, or ")
    all_of_them = await tampu("schedule", "preview", QUEUE, "few", "-n", "2", url=url)
    assert (all_of_them.code, all_of_them.err) == (0, "")
    many = await tampu("schedule", "preview", QUEUE, "few", "-n", "10001", url=url)
    assert (many.code, many.out) == (2, "")
    assert "10000" in many.err


async def test_schedules_are_paused_and_resumed(running: RunningServer, harness: Harness) -> None:
    url = running.url
    await harness.queue.schedules.add("digest", CRON, key="digest")
    paused = await tampu("schedule", "pause", QUEUE, "digest", "--json", url=url)
    assert paused.json == {"queue": QUEUE, "key": "digest", "paused": True}
    again = await tampu("schedule", "pause", QUEUE, "digest", url=url)
    assert (again.code, again.err) == (1, "tampu: Schedule 'digest' is already paused.\n")
    assert (await tampu("schedule", "resume", QUEUE, "digest", url=url)).out == (
        "digest is resumed.\n"
    )
    again = await tampu("schedule", "resume", QUEUE, "digest", url=url)
    assert (again.code, again.err) == (1, "tampu: Schedule 'digest' is not paused.\n")


async def test_schedules_are_triggered_backfilled_and_removed(
    running: RunningServer, harness: Harness
) -> None:
    url = running.url
    await harness.queue.schedules.add("digest", CRON, key="digest")
    fired = (await tampu("schedule", "trigger", QUEUE, "digest", "--json", url=url)).json
    assert list(fired) == ["queue", "key", "job_id"]
    filling = ("schedule", "backfill", QUEUE, "digest", "--start", "2026-11-02T00:00Z")
    filled = (await tampu(*filling, "--end", "2026-11-07T00:00Z", "--json", url=url)).json
    assert len(filled["job_ids"]) == 5
    many = await tampu(*filling, "--end", "2026-11-07T00:00Z", "--max", "2", url=url)
    assert many.code == 2
    assert many.err.startswith("tampu: Invalid --max 2: ")
    naive = await tampu(*filling, "--end", "2026-11-07T00:00", url=url)
    problem = "expected a date and time with its offset, such as 2026-01-31T09:00Z."
    assert (naive.code, naive.err) == (
        2,
        f"tampu: Invalid --end '2026-11-07T00:00': {problem}\n",
    )
    assert (await harness.queue.counts()).waiting == 6

    kept = await tampu("schedule", "rm", QUEUE, "digest", url=url, typed="no\n")
    assert (kept.code, kept.err) == (
        1,
        "Remove schedule digest of work? [y/N] tampu: Nothing was changed.\n",
    )
    gone = await tampu("schedule", "rm", QUEUE, "digest", "-y", "--json", url=url)
    assert gone.json == {"queue": QUEUE, "key": "digest", "removed": True}
    assert await harness.queue.schedules.list() == []
