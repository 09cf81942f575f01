"""How long the attempts of tasks took; of busy tasks some attempts stand for many."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tampu.metrics.history import bucket_of
from tampu.wire.history import PackedTimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ALL_UP_TO: Final = 1000  # jobs of a task a second: more of them are sampled
_WINDOW_MS: Final = 100
_ALL_A_WINDOW: Final = _ALL_UP_TO * _WINDOW_MS // 1000


class TaskTimes:
    """How long the attempts of one task ran and waited."""

    __slots__ = ("run", "run_us", "wait", "wait_us")

    def __init__(self) -> None:
        self.run: Counter[int] = Counter()
        self.wait: Counter[int] = Counter()
        self.run_us = self.wait_us = 0

    def add(self, run_us: int, wait_us: int, weight: int) -> None:
        """Add an attempt that stands for `weight` of them."""
        self.run[bucket_of(run_us)] += weight
        self.wait[bucket_of(wait_us)] += weight
        self.run_us += run_us * weight
        self.wait_us += wait_us * weight

    def merge(self, other: TaskTimes) -> None:
        """Add all times of another."""
        self.run.update(other.run)
        self.wait.update(other.wait)
        self.run_us += other.run_us
        self.wait_us += other.wait_us

    def pack(self) -> PackedTimes:
        """The times as the server takes them."""
        run, wait = _flatten(self.run), _flatten(self.wait)
        return PackedTimes(self.run_us, self.wait_us, run, wait)


def _flatten(counts: Counter[int]) -> list[int]:
    return [number for pair in counts.items() for number in pair]


class Sampler:
    """Chooses which jobs of a batch are timed: all of a task, or one of so many of a busy one."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}  # of busy tasks
        self._counts: dict[str, int] = {}  # since `_began_ms`
        self._began_ms = 0
        self._phase = 0

    def choose(
        self, names: list[str], counts: Mapping[str, int], now_ms: int
    ) -> Iterable[tuple[int, int]]:
        """Positions in the batch, and for how many jobs each of them stands."""
        self._adapt(counts, now_ms)
        steps = self._steps
        busy = [steps[name] for name in counts if name in steps]
        if not busy:
            return [(position, 1) for position in range(len(names))]
        step, phase = min(busy), self._phase
        self._phase = (phase - len(names)) % step
        chosen = [(at, step) for at in range(phase % step, len(names), step) if names[at] in steps]
        if len(counts) > len(busy):
            chosen += [(at, 1) for at, name in enumerate(names) if name not in steps]
        return chosen

    def _adapt(self, counts: Mapping[str, int], now_ms: int) -> None:
        """Choose steps from the counts of the last tenth of a second, and of this one so far."""
        if now_ms - self._began_ms >= _WINDOW_MS:
            allowed = _ALL_UP_TO * (now_ms - self._began_ms) // 1000
            seen, self._counts, self._began_ms = self._counts, {}, now_ms
            self._steps = {
                name: 1 + number // allowed for name, number in seen.items() if number > allowed
            }
        for name, number in counts.items():
            total = self._counts[name] = self._counts.get(name, 0) + number
            if total > _ALL_A_WINDOW:
                self._steps[name] = max(self._steps.get(name, 0), 1 + total // _ALL_A_WINDOW)
