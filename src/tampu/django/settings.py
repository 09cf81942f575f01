"""The options of a `TampuBackend` in Django's setting `TASKS`, checked."""

from dataclasses import dataclass
from typing import Final

from tampu.backoff import DEFAULT_BACKOFF, Backoff
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.errors import OptionError
from tampu.server.connect import Target, check_target
from tampu.util.clock import Duration
from tampu.util.options import Word, check_type
from tampu.wire.names import check_queue_name

MAX_QUEUE_NAME: Final = 36
"""Longer names would make ids of results that are longer than the 64 characters Django allows."""
DEFAULT_CONCURRENCY: Final = 10


class EnqueueMode(Word):
    """When a job is added, if a transaction of the database is open."""

    NOW = "now"  # at once, whatever becomes of the transaction
    ON_COMMIT = "on_commit"  # after it is committed
    OUTBOX = "outbox"  # with a row of the transaction, which a relay moves to the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """`OPTIONS` of a `TampuBackend`."""

    url: Target = None  # of the server; None: TAMPU_URL, else the embedded server
    attempts: int = 1  # unless the task has its own number
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: Duration | None = None  # of one attempt
    enqueue: EnqueueMode | str = EnqueueMode.NOW
    database: str = "default"  # whose transactions count for on_commit and outbox
    result_ttl: Duration = "7d"
    concurrency: int = DEFAULT_CONCURRENCY  # jobs at a time; each may hold a database connection

    def __post_init__(self) -> None:
        check_target(self.url, None)
        check_type("database", self.database, str, accepted="the name of a database of DATABASES")
        _ = self.mode
        WorkerSettings(**self.worker)  # checks the others

    @property
    def mode(self) -> EnqueueMode:
        """When a job is added."""
        try:
            return EnqueueMode(str(self.enqueue))
        except ValueError:
            known = ", ".join(map(str, EnqueueMode))
            raise OptionError("enqueue", self.enqueue, f"expected one of {known}") from None

    @property
    def worker(self) -> WorkerOptions:
        """The options of its workers."""
        return WorkerOptions(
            attempts=self.attempts,
            backoff=self.backoff,
            timeout=self.timeout,
            result_ttl=self.result_ttl,
            concurrency=self.concurrency,
            store_results=True,
        )


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """A backend of `TASKS`: its alias, its queues and its options. Equal ones share connections."""

    alias: str
    queues: tuple[str, ...]  # none: any
    options: BackendOptions


def check_task_queue(name: str) -> None:
    """Refuse a queue that cannot be part of the id of a result."""
    check_queue_name(name)
    if len(name) > MAX_QUEUE_NAME:
        problem = f"must have at most {MAX_QUEUE_NAME} characters, because it is part of result ids"
        raise OptionError("queue", name, problem)
