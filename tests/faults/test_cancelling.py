"""Jobs that are cancelled while their workers die: none of them runs later, and nothing is lost."""

import asyncio
import os
from random import Random
from time import monotonic

import pytest

from tampu import CancelState, JobCancelled, JobState, Queue
from tests.faults.conftest import StartWorker
from tests.faults.jobs import add_all, is_at_rest
from tests.faults.ledger import Kind, Ledger, check
from tests.waiting import wait_until

KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "3"))  # `make faults` kills more often
JOBS_A_KILL = 2000
AT_ONCE = 25
BATCHES = 8
HELD = 20


class Answers:
    """What was said about each job that was to be cancelled, and when."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.ids: list[str] = []  # by tag
        self.states: dict[int, CancelState] = {}
        self._told_at: dict[int, float] = {}

    async def cancel(self, tags: list[int]) -> None:
        states = await self._queue.cancel_many([self.ids[tag] for tag in tags])
        now = monotonic()
        for tag, state in zip(tags, states, strict=True):
            self.states[tag], self._told_at[tag] = state, now

    def of(self, wanted: CancelState) -> set[str]:
        return {str(tag) for tag, state in self.states.items() if state is wanted}

    async def assert_kept(self, ledger: Ledger) -> None:
        """Nothing of it was untrue, and every other job was done."""
        lines = ledger.lines()
        done = {line.tag for line in lines if line.kind is Kind.DONE}
        for line in lines:
            if line.kind is Kind.STARTED and line.tag in self.of(CancelState.CANCELLED):
                # It may have been started before, by a worker that gave it back.
                told_at = self._told_at[int(line.tag)]
                assert line.at < told_at, f"{line.tag} was cancelled, and started after that"
        assert self.of(CancelState.TOO_LATE) <= done
        stopped = self.of(CancelState.CANCELLING) - done
        report = check(lines)
        assert report.lost - self.of(CancelState.CANCELLED) == stopped
        for tag in stopped:
            state = (await self._queue.job(self.ids[int(tag)]).info()).state
            assert state is JobState.CANCELLED, f"{tag} was not done, and is {state.value}"
        assert not report.ghosts
        assert not report.unexplained
        assert not report.added_twice


async def kill_the_one_that_was_asked(
    queue: Queue, ledger: Ledger, start_worker: StartWorker, **other: object
) -> Answers:
    """A worker dies before it hears what it is asked; another one starts after that."""
    killed = await start_worker(concurrency=HELD)
    answers = Answers(queue)
    answers.ids += await add_all(queue, ledger, "hang", range(HELD))
    await wait_until(
        lambda: ledger.count(Kind.STARTED) == HELD, within=60, sentence="all jobs are running"
    )
    killed.pause()
    await answers.cancel(list(range(0, HELD, 2)))
    assert set(answers.states.values()) == {CancelState.CANCELLING}
    await killed.kill()
    await start_worker(**other)
    await wait_until(lambda: is_at_rest(queue), within=40, sentence="all are settled")
    return answers


def assert_only_the_others_ran_again(ledger: Ledger) -> None:
    runs = check(ledger.lines()).runs
    again = {tag for tag in range(HELD) if runs[str(tag)] == 2}
    even = {tag for tag in again if tag % 2 == 0}
    assert not even, f"{even} were cancelled, and ran again"
    assert again == set(range(1, HELD, 2))


@pytest.mark.every_server
async def test_a_worker_that_starts_later_does_what_a_killed_one_was_asked(
    queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    answers = await kill_the_one_that_was_asked(queue, ledger, start_worker)
    await answers.assert_kept(ledger)
    assert_only_the_others_ran_again(ledger)
    with pytest.raises(JobCancelled):
        await queue.job(answers.ids[0]).result(10)


async def test_a_worker_that_does_not_listen_is_found_out(
    queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    answers = await kill_the_one_that_was_asked(queue, ledger, start_worker, deaf=True)
    assert len(answers.states) == HELD / 2
    with pytest.raises(AssertionError, match="were cancelled, and ran again"):
        assert_only_the_others_ran_again(ledger)


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_cancelling_while_workers_are_killed_one_after_another(
    queue: Queue, ledger: Ledger, start_worker: StartWorker
) -> None:
    rng = Random(7)  # noqa: S311 - who is killed, and what is cancelled
    workers = list(await asyncio.gather(*(start_worker(concurrency=3) for _ in range(3))))
    answers = Answers(queue)
    for number in range(KILLS):
        tags = range(number * JOBS_A_KILL, (number + 1) * JOBS_A_KILL)
        await queue.pause()
        answers.ids += await add_all(queue, ledger, "short", tags)
        for batch in range(BATCHES):
            # From what the workers hold now to what they will reach soon.
            reached = ledger.count(Kind.STARTED) + len(answers.of(CancelState.CANCELLED))
            near = [tag for tag in tags if reached - 9 <= tag < reached + 300 or tag >= tags[-200]]
            new = [tag for tag in near if tag not in answers.states]
            await answers.cancel(rng.sample(new, min(AT_ONCE, len(new))))
            if batch == 0:
                await queue.resume()
            elif batch == BATCHES // 2:
                await workers.pop(rng.randrange(len(workers))).kill()
        workers.append(await start_worker(concurrency=3))
    await wait_until(lambda: is_at_rest(queue), within=60, sentence="all are settled")
    assert answers.of(CancelState.CANCELLED)
    await answers.assert_kept(ledger)
    for process in workers:
        await process.stop()
