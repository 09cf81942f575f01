"""`tampu dead` and `tampu queue`, as users run them."""

import pytest

from tampu import Bury, DeadLetter
from tampu.job import Job
from tests.contract.cli import tampu
from tests.contract.workers import QUEUE, Gate, Harness
from tests.servers import RunningServer

LETTER_KEYS = [
    *("dead_id", "buried_at", "job_id", "name", "reason", "detail", "attempt", "worker"),
    *("error", "data", "raw"),
]


async def fail(job: Job[object]) -> None:
    """A handler that buries odd jobs, and fails with a long text on others."""
    raise Bury("no address") if job.name == "odd" else ValueError("x" * 200)


async def bury_three(harness: Harness) -> list[DeadLetter]:
    worker = await harness.start_worker(fail, attempts=1)
    await harness.queue.add_each("boom", [{"to": "ada"}, {"to": "bob"}])
    await harness.queue.add("odd")
    letters = await harness.dead_letters(3)
    await worker.stop()
    return letters


async def test_dead_letters_are_listed_and_shown(running: RunningServer, harness: Harness) -> None:
    url, letters = running.url, await bury_three(harness)
    listed = await tampu("dead", "ls", QUEUE, url=url)
    assert listed.lines[0].split() == ["Id", "Age", "Name", "Reason", "Attempts", "Error"]
    assert [line.split()[0] for line in listed.lines[1:4]] == [each.dead_id for each in letters]
    assert max(map(len, listed.lines)) <= 80
    assert "3 of 3: 2 retries_exhausted, 1 unrecoverable" in listed.lines
    told = (await tampu("dead", "ls", QUEUE, "-n", "1", "--json", url=url)).json
    assert (told["queue"], told["total"], len(told["letters"])) == (QUEUE, 3, 1)
    assert list(told["letters"][0]) == LETTER_KEYS
    behind = ("--after", letters[0].dead_id, "--json")
    rest = (await tampu("dead", "ls", QUEUE, *behind, url=url)).json
    assert [each["dead_id"] for each in rest["letters"]] == [each.dead_id for each in letters[1:]]

    shown = await tampu("dead", "show", QUEUE, letters[0].dead_id, url=url)
    assert f"Job          {letters[0].job_id}" in shown.lines
    assert "Traceback (most recent call last):" in shown.lines
    missing = await tampu("dead", "show", QUEUE, "1-1", url=url)
    assert (missing.code, missing.err) == (1, "tampu: Queue 'work' has no dead letter '1-1'.\n")


async def test_dead_letters_are_listed_by_name_reason_error_and_age(
    running: RunningServer, harness: Harness
) -> None:
    url, letters = running.url, await bury_three(harness)
    for typed, found in {
        ("--name", "boom"): [0, 1],
        ("--reason", "unrecoverable"): [2],
        ("--error", "valueerror: xxx"): [0, 1],
        ("--error", "no address", "--name", "boom"): [],
        ("--newer-than", "1h"): [0, 1, 2],
        ("--newer-than", "1h", "-n", "2"): [0, 1],
        ("--older-than", "1h"): [],
        ("--name", "boom", "--after", letters[0].dead_id): [1],
    }.items():
        told = (await tampu("dead", "ls", QUEUE, *typed, "--json", url=url)).json
        ids = [each["dead_id"] for each in told["letters"]]
        assert ids == [letters[number].dead_id for number in found], typed
    for command in (("ls",), ("replay",), ("purge", "-y")):
        done = await tampu("dead", command[0], QUEUE, "--reason", "tired", *command[1:], url=url)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("tampu: Invalid --reason 'tired': expected one of ")
    assert (await harness.queue.counts()).dead == 3


async def test_dead_letters_are_replayed_and_deleted(
    running: RunningServer, harness: Harness
) -> None:
    url, letters = running.url, await bury_three(harness)
    refused = await tampu("dead", "replay", QUEUE, url=url, typed="n\n")
    question = "Put 3 dead letters back on work? [y/N] "
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == f"{question}tampu: Nothing was changed.\n"
    assert (await tampu("dead", "replay", QUEUE, url=url)).code == 1  # no answer
    assert (await harness.queue.counts()).dead == 3
    done = await tampu("dead", "replay", QUEUE, "--name", "odd", "--yes", "--json", url=url)
    assert done.json == {"queue": QUEUE, "replayed": 1, "not_found": []}
    one = await tampu("dead", "replay", QUEUE, letters[0].dead_id, url=url, typed="y\n")
    assert one.err == "Put 1 dead letter back on work? [y/N] "
    assert one.out == "1 job put back.\n"
    unknown = await tampu("dead", "replay", QUEUE, "1-1", url=url)  # asks nothing
    assert (unknown.code, unknown.out) == (1, "0 jobs put back.\n")
    kept = await tampu("dead", "purge", QUEUE, letters[1].dead_id, url=url, typed="n\n")
    assert kept.err.startswith("Delete 1 dead letter of work for good? [y/N] ")

    which = await tampu("dead", "purge", QUEUE, "--yes", url=url)
    sentence = "tampu: Say which: ids, --older-than, --name, --reason, or --all.\n"
    assert (which.code, which.err) == (2, sentence)
    both = await tampu("dead", "purge", QUEUE, "--all", "--name", "x", url=url)
    assert (both.code, both.err) == (2, "tampu: --all cannot be combined with ids or filters.\n")
    wrong = await tampu("dead", "purge", QUEUE, "--older-than", "1", url=url)  # asks nothing
    assert (wrong.code, wrong.err[:41]) == (2, "tampu: Invalid --older-than '1': expected")
    young = await tampu("dead", "purge", QUEUE, "--older-than", "1h", "-y", "--json", url=url)
    assert young.json == {"queue": QUEUE, "purged": 0, "not_found": []}
    gone = await tampu("dead", "purge", QUEUE, "--all", "-y", url=url)
    assert gone.out == "1 dead letter deleted.\n"
    assert (await tampu("dead", "ls", QUEUE, url=url)).out == "There are no dead letters.\n"


async def test_a_queue_is_purged_after_a_question(running: RunningServer, harness: Harness) -> None:
    url = running.url
    await harness.queue.add_each("x", range(3))
    await harness.queue.add("x", delay=60)
    refused = await tampu("queue", "purge", QUEUE, url=url, typed="\n")
    assert refused.code == 1
    question = "Remove all waiting, delayed and dead jobs of work? [y/N] "
    assert refused.err == f"{question}tampu: Nothing was changed.\n"
    done = await tampu("queue", "purge", QUEUE, "--state", "waiting", "-y", "--json", url=url)
    assert done.json == {"queue": QUEUE, "waiting": 3, "delayed": 0, "dead": 0}
    rest = await tampu("queue", "purge", QUEUE, url=url, typed="yes\n")
    assert rest.out == "Removed 0 waiting, 1 delayed and 0 dead jobs.\n"
    both = await tampu("queue", "purge", QUEUE, "--all", "--state", "dead", "-y", url=url)
    assert (both.code, both.err) == (
        2,
        "tampu: --all cannot be combined with --state.\n",
    )
    all_of_it = await tampu("queue", "purge", QUEUE, "--all", "-y", "--json", url=url)
    assert all_of_it.json["keys"] > 0
    assert (await tampu("inspect", QUEUE, url=url)).code == 1


async def test_drain_waits_until_no_job_waits_or_runs(
    running: RunningServer, harness: Harness
) -> None:
    url = running.url
    gate = Gate()
    await harness.start_worker(gate)
    await harness.queue.add("x")
    await gate.until(1)
    late = await tampu("queue", "drain", QUEUE, "--timeout", "100ms", "--json", url=url)
    assert (late.code, late.json["drained"], late.json["active"]) == (1, False, 1)
    sentence = "tampu: work is not drained after 100ms: 0 waiting, 1 active, 0 delayed.\n"
    assert late.err == sentence
    gate.open.set()
    done = await tampu("queue", "drain", QUEUE, url=url)
    assert (done.code, done.out) == (0, "work is drained: 0 waiting, 0 active, 0 delayed.\n")
    await harness.queue.add("x", delay=60)
    waits = ("queue", "drain", QUEUE, "--delayed", "--timeout", "50ms")
    assert (await tampu(*waits, url=url)).code == 1


async def test_ids_of_dead_letters_that_do_not_exist_are_named(
    running: RunningServer, harness: Harness
) -> None:
    url, letters = running.url, await bury_three(harness)
    there, missing = letters[0].dead_id, ("1-1", "2-2")
    replayed = await tampu("dead", "replay", QUEUE, missing[0], there, missing[1], "-y", url=url)
    sentence = "tampu: Not found among the dead letters of 'work': 1-1, 2-2.\n"
    assert (replayed.code, replayed.out, replayed.err) == (1, "1 job put back.\n", sentence)
    again = await tampu("dead", "replay", QUEUE, there, "--json", url=url)  # asks nothing
    assert (again.code, again.err) == (
        1,
        f"tampu: Not found among the dead letters of 'work': {there}.\n",
    )
    assert again.json == {"queue": QUEUE, "replayed": 0, "not_found": [there]}
    purged = await tampu("dead", "purge", QUEUE, "1-1", letters[1].dead_id, "-y", "--json", url=url)
    assert (purged.code, purged.json) == (1, {"queue": QUEUE, "purged": 1, "not_found": ["1-1"]})
    filtered = await tampu(
        "dead", "replay", QUEUE, letters[2].dead_id, "--name", "x", "-y", url=url
    )
    assert (filtered.code, filtered.out) == (1, "0 jobs put back.\n")
    assert filtered.err.startswith("tampu: 0 of 1 dead letter put back; the others ")
    wrong = await tampu("dead", "replay", QUEUE, "abc", url=url)
    assert wrong.code == 2
    assert wrong.err.startswith("tampu: Invalid ID 'abc': expected ")


@pytest.mark.parametrize("state", ["running", "Waiting"])
async def test_purging_an_unknown_state_is_a_usage_error(state: str) -> None:
    done = await tampu("queue", "purge", QUEUE, "--state", state, url="redis://127.0.0.1:1")
    assert (done.code, done.out) == (2, "")
    assert "'waiting', 'delayed', 'dead'" in done.err
