"""The options of an `App`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tampu.consumer.options import WorkerOptions
from tampu.errors import OptionError
from tampu.metrics.alerts import Alert
from tampu.producer.options import QueueOptions, QueueSettings
from tampu.services.notify import Notifier, Notify
from tampu.tasks.handlers import parse_worker_options
from tampu.tasks.task import AnyTask, Task
from tampu.util.options import check_flag


class AppOptions(QueueOptions, total=False):
    """Options of an `App`: those of its queues, and those of `AppSettings`."""

    worker: WorkerOptions | None
    imports: list[str] | tuple[str, ...]
    prune_schedules: bool
    alerts: list[Alert] | tuple[Alert, ...]
    notify: Notify | AnyTask | Sequence[str | Notifier | AnyTask]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings(QueueSettings):
    """Options of an `App`, validated."""

    worker: WorkerOptions | None = None  # for all of its workers
    imports: list[str] | tuple[str, ...] = ()  # modules that declare tasks of the app
    prune_schedules: bool = False  # workers remove schedules that are no longer declared
    alerts: list[Alert] | tuple[Alert, ...] = ()  # its workers watch for them
    notify: Notify | AnyTask | Sequence[str | Notifier | AnyTask] = ()  # told of alerts

    def __post_init__(self) -> None:
        QueueSettings.__post_init__(self)
        _check_worker(self.worker)
        _check_imports(self.imports)
        check_flag("prune_schedules", self.prune_schedules)
        parse_worker_options("App", _alert_options(self.alerts, self.notify))


def _check_worker(given: WorkerOptions | None) -> None:
    checked: object = {} if given is None else given
    if not isinstance(checked, dict):
        expected = 'expected a dict of worker options, such as {"attempts": 5}'
        raise OptionError("worker", checked, expected)
    parse_worker_options("a worker", given or {})


def _check_imports(given: object) -> None:
    names = given if isinstance(given, list | tuple) else [None]
    if not all(isinstance(each, str) and each for each in names):
        expected = 'expected a list of names of modules, such as ["shop.tasks"]'
        raise OptionError("imports", given, expected)


def queue_options(options: AppOptions) -> QueueOptions:
    """The options of its queues."""
    known = QueueOptions.__annotations__
    own = {name: value for name, value in options.items() if name in known}
    return cast("QueueOptions", own)


def worker_defaults(options: AppOptions) -> WorkerOptions:
    """Options that workers share with queues: a worker buries payloads that are too large."""
    defaults: WorkerOptions = {}
    if "max_payload" in options:
        defaults["max_payload"] = options["max_payload"]
    if "group" in options:
        defaults["group"] = options["group"]
    if "telemetry" in options:
        defaults["telemetry"] = options["telemetry"]
    if options.get("alerts"):
        defaults |= _alert_options(options["alerts"], options.get("notify", ()))
    return defaults


def _alert_options(alerts: list[Alert] | tuple[Alert, ...], notify: object) -> WorkerOptions:
    """The alerts as options of workers, which know a task by its name."""
    given = notify if isinstance(notify, list | tuple) else (notify,)
    names = [each.name if isinstance(each, Task) else each for each in given]
    return {"alerts": alerts, "notify": names}
