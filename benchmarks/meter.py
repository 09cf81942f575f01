"""What the server spends on jobs."""

from dataclasses import dataclass
from typing import Any

from benchmarks.bench import Bench


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of the server for each job: for commands (None before Redis 7.2), and in all."""

    commands: float | None
    processor: float


class Meter:
    """What the server has spent since the meter was made."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._before = self._read()

    def cost(self, jobs: int) -> Cost:
        """What it spent for each of so many jobs."""
        commands, processor = (
            None if now is None or before is None else (now - before) / jobs
            for now, before in zip(self._read(), self._before, strict=True)
        )
        assert processor is not None
        return Cost(commands, processor)

    def _read(self) -> tuple[float | None, float]:
        with self._bench.server.admin() as admin:
            stats: dict[str, Any] = admin.info("stats")
            cpu: dict[str, Any] = admin.info("cpu")
        user, system = cpu["used_cpu_user_main_thread"], cpu["used_cpu_sys_main_thread"]
        # As in `consume`: unlike `commandstats` it counts the commands of a script once.
        return stats.get("eventloop_duration_cmd_sum"), 1e6 * (float(user) + float(system))
