"""What holds the jobs of a queue: its limits, keys and pauses, and what is changed about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tampu.admin.limits import Limits, read_queue_holds
from tampu.dashboard.access import HIDDEN, Action, Redaction
from tampu.dashboard.page import Answer, Operation, View, bad_request, link, not_found
from tampu.errors import OptionError
from tampu.limits.model import Concurrency, Rate
from tampu.util.clock import to_positive_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tampu.admin.limits import LimitInfo, LimitUse, QueueHolds
    from tampu.wire.keys import QueueKeys

_FRESH_S: Final = 0.9
_MOST_KEYS: Final = 10
_MOST_VALUES: Final = 6
_MOST_LIMITS: Final = 50
_MOST_PAUSES: Final = 50
_DELAY: Final = 'for must be a time such as "90s" or "1h30m".'


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One value of a limit, as the table shows it."""

    use: LimitUse
    text: str

    @property
    def is_hidden(self) -> bool:
        """Whether it comes from an argument that is hidden: then nothing can be done to it."""
        return self.text != self.use.value


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit, and those of its values that matter most."""

    info: LimitInfo
    values: Sequence[ValueRow]
    more: int  # values that are in use too

    @property
    def whole(self) -> LimitUse | None:
        """What it counts for all jobs together."""
        return next((each for each in self.info.uses if each.value is None), None)

    @property
    def rate(self) -> str:
        """Its rate in words."""
        info = self.info
        if info.rate is None:
            return ""
        burst = f", {info.burst} at once" if info.burst > 1 else ""
        return f"{info.rate}{burst}{', strict' if info.strict else ''}"


async def read_holds_of(view: View, keys: QueueKeys, *, most_keys: int = _MOST_KEYS) -> QueueHolds:
    """What holds the jobs of a queue, at most a moment old; longer if it takes long to read."""

    async def read() -> QueueHolds:
        return await read_queue_holds(await view.source.lane(keys), keys, most_keys=most_keys)

    return await view.source.cache_by_cost(("limits", keys.name, most_keys), _FRESH_S, read)


async def load_limits(view: View, keys: QueueKeys) -> Mapping[str, object]:
    """What the page of a queue shows of it."""
    state = await read_holds_of(view, keys)
    may_limit = view.may(Action.LIMITS, keys.name)
    return {
        "flow": state,
        "has_flow": bool(
            state.limits or state.keys or state.pauses or state.halted or state.stopped
        ),
        "limits": [_row(each, view.redaction) for each in state.limits[:_MOST_LIMITS]],
        "more_limits": max(0, len(state.limits) - _MOST_LIMITS),
        "pauses": state.pauses[:_MOST_PAUSES],
        "more_pauses": max(0, len(state.pauses) - _MOST_PAUSES),
        "halted": state.halted[:_MOST_PAUSES],
        "stopped": state.stopped[:_MOST_PAUSES],
        "may_limit": may_limit,
        "chosen_limit": _chosen(view, state) if may_limit else None,
        "chosen_value": view.params.get("value", ""),
    }


def _row(info: LimitInfo, redaction: Redaction) -> LimitRow:
    uses = [each for each in info.uses if each.value is not None]
    uses.sort(key=lambda each: (not each.closed, -each.waiting, -each.running, each.value))
    values = [
        ValueRow(each, value_text(info.name, each.value or "", redaction))
        for each in uses[:_MOST_VALUES]
    ]
    return LimitRow(info, values, len(uses) - len(values))


def value_text(limit: str, value: str, redaction: Redaction) -> str:
    """A value of a limit, hidden if the argument that it comes from is."""
    argument = limit.rpartition("(")[2].rpartition(")")[0]
    if not argument:
        return value  # of a limit with a name of its own: nobody knows what it counts by
    return HIDDEN if redaction.apply({argument: value}) != {argument: value} else value


def _chosen(view: View, state: QueueHolds) -> LimitInfo | None:
    """The limit that somebody wants to change."""
    name = view.params.get("limit", "")
    return next((each for each in state.limits if name and each.name == name), None)


# --- what can be done ---------------------------------------------------------------------------


@contextmanager
def _options_of_forms() -> Iterator[None]:
    """What somebody typed, and cannot be, is no error of ours."""
    try:
        yield
    except OptionError as error:
        raise bad_request(str(error)) from None


async def _limit_of(view: View) -> tuple[QueueKeys, str, str | None]:
    """The queue, the limit and the value that a form names; 404 if there is no such limit."""
    keys = await view.queue()
    view.demand(Action.LIMITS, keys.name)
    name, value = view.params.get("limit", ""), view.params.get("value", "")
    if all(each.name != name for each in (await read_holds_of(view, keys)).limits):
        raise not_found("There is no such limit.")
    return keys, name, value or None


def _whose(view: View, name: str, value: str | None) -> str:
    return name if value is None else f"{name} of {value_text(name, value, view.redaction)}"


def _parse_limit(view: View) -> list[Concurrency | Rate]:
    """The limit in a form."""
    most, rate, burst = view.text("concurrency")[:20], view.text("rate")[:40], view.text("burst")
    wanted: list[Concurrency | Rate] = []
    if most:
        wanted.append(Concurrency(_whole("concurrency", most)))
    if rate:
        at_once = _whole("burst", burst[:20]) if burst else None
        wanted.append(Rate(rate, burst=at_once, strict=bool(view.text("strict"))))
    if not wanted:
        raise bad_request("Say how many jobs may run at a time, or a rate, or both.")
    return wanted


def _whole(name: str, given: str) -> int:
    try:
        return int(given)
    except ValueError:
        raise bad_request(f"{name} must be a whole number.") from None


async def change_limit(view: View) -> Answer:
    """Change a limit, or the concurrency of one of its values."""
    keys, name, value = await _limit_of(view)
    with _options_of_forms():
        wanted = _parse_limit(view)
        async with view.source.open_queue(keys) as queue:
            await queue.limits.set(name, *wanted, value=value)
    words = [
        f"{each.most} at a time" if isinstance(each, Concurrency) else each.rate for each in wanted
    ]
    whose = _whose(view, name, value)
    await view.note("change limit", keys.name, f"{whose}: {', '.join(words)}")
    return Answer(f"{whose} is changed.", link("queue", name=keys.name), leave=True)


async def reset_limit(view: View) -> Answer:
    """Let a limit be as the code declares it again."""
    return await _undo(view, Limits.reset, "reset limit", words=("is reset", "was not changed"))


async def open_limit(view: View) -> Answer:
    """Open a limit that a handler has closed."""
    return await _undo(view, Limits.open, "open limit", words=("is open", "was open already"))


async def _undo(
    view: View,
    undo: Callable[..., Awaitable[bool]],
    action: str,
    *,
    words: tuple[str, str],
) -> Answer:
    keys, name, value = await _limit_of(view)
    with _options_of_forms():
        async with view.source.open_queue(keys) as queue:
            changed = await undo(queue.limits, name, value=value)
    whose = _whose(view, name, value)
    await view.note(action, keys.name, whose, count=int(changed))
    return Answer(f"{whose} {words[not changed]}.", link("queue", name=keys.name))


async def weigh_key(view: View) -> Answer:
    """Give a key another share, or the one that its jobs say."""
    keys = await view.queue()
    view.demand(Action.LIMITS, keys.name)
    key, given = view.params.get("key", ""), view.text("weight")[:40]
    try:
        weight = float(given) if given else None
    except ValueError:
        raise bad_request("weight must be a number above 0.") from None
    with _options_of_forms():
        async with view.source.open_queue(keys) as queue:
            await queue.limits.weigh(key, weight)
    share = "as its jobs say" if weight is None else f"{weight:g}"
    await view.note("weigh key", keys.name, f"{key}: {share}")
    return Answer(f"The weight of {key} is {share}.", link("queue", name=keys.name))


async def pause_jobs(view: View) -> Answer:
    """Hold the jobs of a task, of a key, or of both, for a time or until somebody resumes them."""
    keys = await view.queue()
    view.demand(Action.PAUSE, keys.name)
    task, key, what = _jobs_of(view)
    lasts = view.text("for")[:40]
    try:
        until = to_positive_ms("for", lasts) / 1000 if lasts else None
    except OptionError:
        raise bad_request(_DELAY) from None
    with _options_of_forms():
        async with view.source.open_queue(keys) as queue:
            changed = await queue.pause(task=task, key=key, until=until)
    ends = f" for {lasts}" if lasts else ""
    await view.note("pause", keys.name, what + ends, count=int(changed))
    # Pausing again changes how long it lasts.
    return Answer(f"{what} is paused{ends}.", link("queue", name=keys.name))


async def resume_jobs(view: View) -> Answer:
    """Let workers start them again."""
    keys = await view.queue()
    view.demand(Action.PAUSE, keys.name)
    task, key, what = _jobs_of(view)
    with _options_of_forms():
        async with view.source.open_queue(keys) as queue:
            changed = await queue.resume(task=task, key=key)
    await view.note("resume", keys.name, what, count=int(changed))
    sentence = f"{what} {'is resumed' if changed else 'was not paused'}."
    return Answer(sentence, link("queue", name=keys.name))


def _jobs_of(view: View) -> tuple[str | None, str | None, str]:
    """The task, the key or both that a form names, and what that is called."""
    task, key = view.params.get("task") or None, view.params.get("key") or None
    if task is None and key is None:
        raise bad_request("Name a task, a key, or both.")
    words = [f"task {task}" if task is not None else "", f"key {key}" if key is not None else ""]
    return task, key, " with ".join(filter(None, words))


OPERATIONS = (
    Operation(path="change-limit", run=change_limit),
    Operation(path="reset-limit", run=reset_limit),
    Operation(path="open-limit", run=open_limit),
    Operation(path="weigh-key", run=weigh_key),
    Operation(path="pause-jobs", run=pause_jobs),
    Operation(path="resume-jobs", run=resume_jobs),
)
