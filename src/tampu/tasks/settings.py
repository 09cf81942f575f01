"""Options of a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from tampu.backoff import Backoff
from tampu.consumer.handler import Batch, Isolation
from tampu.errors import OptionError
from tampu.limits.declared import CostOf, KeyOf, TaskFlow, WeightOf
from tampu.limits.model import AnyLimit, Breaker, Debounce
from tampu.tasks.generators import Collect, check_collect
from tampu.tasks.middleware import Middleware, check_middleware
from tampu.unique import Unique
from tampu.util.clock import Duration, to_positive_ms
from tampu.util.options import at_least, check_flag, check_type
from tampu.wire.names import check_job_name, check_queue_name
from tampu.wire.output import MAX_CHUNKS, OutputRules


class PlainTaskKeywords(TypedDict, total=False):
    """Options of a task, as keywords, but `collect`, which has the type of what is yielded."""

    name: str | None
    queue: str | None
    attempts: int | None
    backoff: Backoff | None
    timeout: Duration | None
    isolation: Isolation
    unique: Unique | None
    result_ttl: Duration | None
    middleware: list[Middleware] | tuple[Middleware, ...]
    expires: Duration | None
    priority: int | None
    key: KeyOf
    weight: WeightOf
    limits: Sequence[AnyLimit]
    ordered: bool
    on_dead: str | None
    cost: CostOf
    debounce: Debounce | None
    keep: str | None
    max_waiting: int | None
    on_full: str | None
    breaker: Breaker | None
    batch: Batch | None
    window: int | None
    cancel_on_close: bool


class TaskOptions(PlainTaskKeywords, total=False):
    """Options of a task, as keywords; `TaskSettings` explains them."""

    collect: Collect | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Options of a task. Those that a `Handler` has too are validated there."""

    name: str | None = None  # None: the name of the function
    queue: str | None = None  # None: the queue of the router, or of the app
    attempts: int | None = None  # for this and the next four, None means the worker's option
    backoff: Backoff | None = None
    timeout: Duration | None = None
    isolation: Isolation = None
    unique: Unique | None = None  # at most one job with the same arguments at a time
    result_ttl: Duration | None = None  # how long its results are kept; 0: not at all
    middleware: list[Middleware] | tuple[Middleware, ...] = ()
    expires: Duration | None = None  # its jobs are buried if they have not started by then
    priority: int | None = None  # 0 to 9, larger is sooner; None: 5
    key: KeyOf = None  # what its jobs are grouped by: an argument's name, or a function of all
    weight: WeightOf = None  # the share of a key, or a function of the key; None: 1
    limits: Sequence[AnyLimit] = ()  # Concurrency(...), Rate(...), Limit("name")
    ordered: bool = False  # jobs of a key run one after the other, in the order of their adding
    on_dead: str | None = None  # of an ordered task: "halt" stops a key at a dead letter
    cost: CostOf = None  # tokens that a job takes of rates: a number, or as `key`; None: 1
    debounce: Debounce | None = None  # only the latest of several jobs runs
    keep: str | None = None  # "latest": a job replaces those of its key that wait
    max_waiting: int | None = None  # so many jobs wait at most, of each key
    on_full: str | None = None  # then "raise" (or None), "wait", "drop_new", "drop_old"
    breaker: Breaker | None = None  # no job starts for a while if too many attempts fail
    batch: Batch | None = None  # the function gets many jobs at once
    window: int | None = None  # of a generator: waits when so many chunks are unread
    cancel_on_close: bool = False  # of a generator: cancelled when all its readers have left
    collect: Collect | None = None  # of a generator: makes the result of all that it has yielded

    def __post_init__(self) -> None:
        if self.name is not None:
            check_job_name(self.name)
        if self.queue is not None:
            check_queue_name(self.queue)
        if self.unique is not None:
            check_type("unique", self.unique, Unique, accepted="Unique(...)")
        check_middleware(self.middleware)
        if self.expires is not None:
            to_positive_ms("expires", self.expires)
        self.flow.check()
        check_collect(self.collect)
        if self.window is not None:
            at_least("window", self.window, 1, most=MAX_CHUNKS)
        check_flag("cancel_on_close", self.cancel_on_close)

    def check_streaming(self, *, streams: bool) -> None:
        """Refuse options that only a generator can have, or that it cannot."""
        if streams:
            if self.batch is not None:
                raise OptionError("batch", self.batch, "not possible for a function that yields")
            return
        for option in ("collect", "window", "cancel_on_close"):
            given = getattr(self, option)
            if given is not None and given is not False:
                raise OptionError(option, given, "only possible for a function that yields")

    @property
    def output_rules(self) -> OutputRules:
        """How a generator yields."""
        return OutputRules(self.window, self.cancel_on_close)

    @property
    def flow(self) -> TaskFlow:
        """Where its jobs wait."""
        return TaskFlow(
            priority=self.priority,
            key=self.key,
            weight=self.weight,
            limits=self.limits,
            ordered=self.ordered,
            on_dead=self.on_dead,
            cost=self.cost,
            debounce=self.debounce,
            keep=self.keep,
            max_waiting=self.max_waiting,
            on_full=self.on_full,
            breaker=self.breaker,
        )
