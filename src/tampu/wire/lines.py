"""Lines: where jobs wait that flow control applies to, and how lines and limits are spelled.

    <level>[/<key>][|<resource>]...     for example  5/t17|charge(tenant):t17|stripe

A resource is what one limit counts: `<limit>`, or `<limit>:<value>` if it counts each value
apart. Some need no definition: `>:<key>` lets ordered jobs through one at a time, and `>!:<key>`
says that their key stops when one is buried; `!:<what>` holds what may be paused; `@:<task>` only
keeps a task apart; `~<share>/<of>/<cooldown>:<task>` is the breaker of a task. Names, keys and
values are escaped, so that the signs between them are unique.
"""

import re
from typing import Final

from msgspec import Struct

_SIGNS: Final = re.compile(r"[%|/:\x00-\x1f\x7f]")
_ESCAPED: Final = re.compile(r"%([0-9A-F]{2})")
PLAIN_LINE: Final = "5"
"""The line of jobs without a key, a priority or a limit."""
ORDERED: Final = ">"
PAUSED: Final = "!"
HALTED: Final = ">!"
"""A resource without a limit, of ordered jobs whose key stops when one of them is buried."""
OWN_LINE: Final = "@"
"""A resource without a limit, which keeps the jobs of a task apart from others."""
BREAKER: Final = "~"
_BEFORE_BREAKER: Final = f"|{BREAKER}"
_BREAKER: Final = re.compile(r"~([^/]+)/([0-9]+)/([0-9]+):(.+)")
FOREVER_MS: Final = 9_000_000_000_000_000
"""The end of what has no end, as the gate writes it."""


class Line(Struct, frozen=True):
    """What the jobs of a line need."""

    level: int
    key: str | None = None
    resources: tuple[str, ...] = ()

    @property
    def is_ordered(self) -> bool:
        """Whether its jobs run one after the other."""
        return any(limit_of(each)[0] == ORDERED for each in self.resources)

    def __str__(self) -> str:
        key = "" if self.key is None else f"/{escape(self.key)}"
        return "|".join((f"{self.level}{key}", *self.resources))


class LimitDefinition(Struct, frozen=True, kw_only=True):
    """A limit as the gate stores it; 0 for what it does not have."""

    concurrency: int = 0
    count: int = 0  # so many tokens in `per_us`
    per_us: int = 0
    burst: int = 1
    strict: bool = False

    @property
    def rate_text(self) -> str | None:
        """The rate as its user would write it; None if it has none."""
        if not self.count:
            return None
        per_s = self.per_us / 1_000_000
        for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
            if per_s >= seconds and per_s % seconds == 0:
                number = round(per_s / seconds)
                return f"{self.count}/{'' if number == 1 else number}{unit}"
        return f"{self.count}/{round(per_s * 1000)}ms"

    def to_sentence(self) -> str:
        """The limit in words."""
        parts = [f"{self.concurrency} at a time" if self.concurrency else "", self.rate_text or ""]
        if self.strict:
            parts.append("strict")
        elif self.burst > 1:
            parts.append(f"burst {self.burst}")
        return ", ".join(filter(None, parts)) or "no limit"

    def to_text(self) -> str:
        """The definition in the hash of limits."""
        return f"{self.concurrency} {self.count} {self.per_us} {self.burst} {int(self.strict)}"


class BreakerDefinition(Struct, frozen=True):
    """The breaker of a task. All of it is in the name of its resource."""

    task: str
    failures: float  # this share of attempts
    of: int  # the last so many
    cooldown_ms: int

    @property
    def resource(self) -> str:
        """The resource that the jobs of the task need."""
        return f"{BREAKER}{self.failures:g}/{self.of}/{self.cooldown_ms}:{escape(self.task)}"


def escape(text: str) -> str:
    """A name, key or value as a part of a line."""
    return _SIGNS.sub(lambda sign: f"%{ord(sign[0]):02X}", text)


def unescape(text: str) -> str:
    """The name, key or value in a part of a line."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text)


def resource_name(limit: str, value: str | None = None) -> str:
    """The resource of a limit, or of one value of it."""
    return limit if value is None else f"{limit}:{escape(value)}"


def parse_line(text: str) -> Line:
    """The parts of a line that the gate wrote."""
    head, *resources = text.split("|")
    level, slash, key = head[:1], head[1:2], head[2:]
    return Line(
        int(level) if level.isdigit() else 5, unescape(key) if slash else None, tuple(resources)
    )


def pauses_of(name: str, key: str | None) -> list[str]:
    """How the gate names the pauses that hold a job: of its task, its key, and both."""
    task = escape(name)
    return [task] if key is None else [task, f"/{escape(key)}", f"{task}/{escape(key)}"]


def holds_of(name: str, key: str | None, line: str | None) -> list[str]:
    """What workers are told to hold that covers a job: pauses, breakers, and other resources."""
    resources = () if line is None or "|" not in line else line.split("|")[1:]
    return pauses_of(name, key) + [
        each if each.startswith(BREAKER) else f"|{each}" for each in resources
    ]


def limit_of(resource: str) -> tuple[str, str | None]:
    """The limit of a resource, and the value that it is for, if any."""
    limit, colon, value = resource.partition(":")
    return limit, unescape(value) if colon else None


def parse_breaker(resource: str) -> BreakerDefinition | None:
    """The breaker whose resource this is; None if it is another kind of resource."""
    found = _BREAKER.fullmatch(resource)
    if found is None:
        return None
    failures, of, cooldown_ms, task = found.groups()
    return BreakerDefinition(unescape(task), float(failures), int(of), int(cooldown_ms))


def breakers_of(line: str | None) -> list[str]:
    """The resources of breakers that the jobs of a line need."""
    if line is None or _BEFORE_BREAKER not in line:
        return []
    return [each for each in parse_line(line).resources if parse_breaker(each) is not None]


def parse_definition(text: str) -> LimitDefinition:
    """The definition in the hash of limits."""
    numbers = [int(each) for each in text.split()]
    concurrency, count, per_us, burst, strict = (*numbers, 0, 0, 0, 1, 0)[:5]
    return LimitDefinition(
        concurrency=concurrency, count=count, per_us=per_us, burst=burst, strict=bool(strict)
    )
