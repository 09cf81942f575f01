"""What is counted while the shop runs, and what is worth a line."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tampu.metrics.facts import Fact, Firings, JobBuried, JobEnded, OutcomeKind, RetryScheduled


class TaskTally(Struct):
    """The runs of one task. `done` jobs and `dead` ones have ended, `retried` counts runs."""

    done: int = 0
    retried: int = 0
    dead: int = 0

    @property
    def runs(self) -> int:
        """How often its function was called."""
        return self.done + self.retried + self.dead


class Tally:
    """A sink that counts by task; `news` are sentences, in the order in which things happened."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = {name: TaskTally() for name in tasks}
        self.news: list[str] = []
        self.placed = 0  # orders

    @property
    def tasks(self) -> Mapping[str, TaskTally]:
        """What was counted, by task."""
        return self._tasks

    def record(self, facts: Sequence[Fact]) -> None:
        """Count what workers tell."""
        for fact in facts:
            match fact:
                case JobEnded(name=name, outcome=OutcomeKind.DONE):
                    self._tasks[name].done += 1
                case RetryScheduled(name=name, attempt=attempt, backoff_ms=wait_ms):
                    self._tasks[name].retried += 1
                    self.news.append(f"{name} failed; attempt {attempt} follows in {wait_ms} ms")
                case JobBuried(name=name, reason=reason, attempt=attempt):
                    self._tasks[name].dead += 1
                    told = f"{name} is a dead letter after attempt {attempt}: {reason.value}"
                    self.news.append(told)
                case Firings(fired=fired) if fired:
                    self.news.append("a schedule has fired")
                case _:
                    pass
