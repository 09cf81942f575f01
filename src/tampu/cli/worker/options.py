"""The options of `tampu worker`, checked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tampu.cli.output import usage_error
from tampu.errors import OptionError
from tampu.util.clock import to_ms

MOST_SLOTS: Final = 100_000
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_POWERS: Final = "KMGT"


@dataclass(frozen=True, slots=True)
class HealthOptions:
    """Where the worker shows its health; None: nowhere."""

    file: str | None = None
    port: int | None = None
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecyclingOptions:
    """When a process is replaced by a new one; None: never."""

    jobs: int | None = None
    rss: str | None = None

    @property
    def rss_bytes(self) -> int | None:
        """How much memory a process may use."""
        return None if self.rss is None else parse_size("max_rss", self.rss)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """How many processes run the tasks; None: this one, without a supervisor."""

    processes: int | None = None
    reload: bool = False
    reload_dir: str | None = None  # None: where the module of the app is

    @property
    def is_supervised(self) -> bool:
        """Whether this process starts others and watches them."""
        return self.processes is not None or self.reload

    @property
    def count(self) -> int:
        """How many processes run the tasks."""
        return self.processes or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommandOptions:
    """All options of the command."""

    target: str
    queue: Sequence[str]
    processes: ProcessOptions
    recycling: RecyclingOptions
    health: HealthOptions
    burst: bool
    grace: str | None
    store_results: bool | None
    imports: Sequence[str]
    quiet: bool

    def __post_init__(self) -> None:
        if self.burst and self.processes.reload:
            raise usage_error("--reload cannot be combined with --burst.")
        if self.processes.reload_dir is not None and not self.processes.reload:
            raise usage_error("--reload-dir needs --reload.")
        parse_slots(self.queue)
        if self.grace is not None:
            to_ms("grace", self.grace)
        if self.recycling.rss is not None:
            parse_size("max_rss", self.recycling.rss)

    @property
    def queues(self) -> Mapping[str, int | None]:
        """The concurrency of each queue; None: the app's own. Empty: all queues of the app."""
        return parse_slots(self.queue)


def parse_slots(texts: Sequence[str]) -> dict[str, int | None]:
    """Queues and their concurrency from texts such as emails=50; None if not given."""
    found: dict[str, int | None] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        valid = not equals or (number.isdecimal() and 1 <= int(number) <= MOST_SLOTS)
        if not name or not valid:
            problem = f"expected NAME or NAME=CONCURRENCY, such as emails=50, up to {MOST_SLOTS}"
            raise OptionError("queue", text, problem)
        if name in found:
            raise OptionError("queue", text, "must be given only once")
        found[name] = int(number) if equals else None
    return found


def parse_size(option: str, text: str) -> int:
    """A number of bytes from a text such as 512MB or 1.5GiB; above 0."""
    found = _SIZE.fullmatch(text.strip())
    size = 0
    if found:
        unit = (found[2] or "").upper()
        base = 1024 if unit.endswith("I") else 1000
        size = int(float(found[1]) * base ** (_POWERS.index(unit[0]) + 1 if unit else 0))
    if size <= 0:
        raise OptionError(option, text, "expected a size such as 512MB, 1.5GiB or 1000000")
    return size
