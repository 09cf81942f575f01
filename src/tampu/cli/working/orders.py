"""What `tampu worker` was told, checked."""

from collections.abc import Mapping
from dataclasses import dataclass

from tampu.cli.given import bytes_of, slots_of
from tampu.errors import OptionError
from tampu.util.clock import to_ms


@dataclass(frozen=True, slots=True)
class Probes:
    """Where others can see how it is; None: nowhere."""

    file: str | None = None
    port: int | None = None
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recycling:
    """After what a process makes room for a new one, as it was typed; None: never."""

    jobs: int | None = None
    rss: str | None = None

    @property
    def rss_bytes(self) -> int | None:
        """The most memory that it may have."""
        return None if self.rss is None else bytes_of("max_rss", self.rss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How many processes there are, and what they are started anew for."""

    processes: int | None = None  # None: this one, with nobody above it
    reload: bool = False

    @property
    def is_supervised(self) -> bool:
        """Whether one process looks after others that do the work."""
        return self.processes is not None or self.reload

    @property
    def size(self) -> int:
        """How many do the work."""
        return self.processes or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """All of it."""

    target: str
    queue: list[str]
    crew: Crew
    recycling: Recycling
    probes: Probes
    burst: bool
    grace: str | None
    log_level: str
    quiet: bool

    def __post_init__(self) -> None:
        if self.burst and self.crew.reload:
            raise OptionError("reload", True, "cannot be given along with --burst")  # noqa: FBT003
        slots_of(self.queue)
        if self.grace is not None:
            to_ms("grace", self.grace)
        if self.recycling.rss is not None:
            bytes_of("max_rss", self.recycling.rss)

    @property
    def queues(self) -> Mapping[str, int | None]:
        """Runs at a time for each queue; None: as the app has it. Empty: all of its queues."""
        return slots_of(self.queue)
