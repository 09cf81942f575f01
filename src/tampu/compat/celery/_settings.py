"""The settings of an app: those that have an effect, those that need none, and those refused."""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any, Final

from tampu.compat.celery.exceptions import NotSupported
from tampu.errors import OptionError
from tampu.util.options import hint_of

USED: Final[Mapping[str, object]] = {
    "beat_schedule": {},
    "broker_url": None,
    "imports": (),
    "include": (),
    "result_backend": None,
    "result_expires": timedelta(days=1),
    "task_always_eager": False,
    "task_default_priority": None,
    "task_default_queue": "celery",
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_queues": None,
    "task_routes": None,
    "task_soft_time_limit": None,
    "task_time_limit": None,
    "task_track_started": False,
    "timezone": None,
    "worker_concurrency": None,
    "worker_pool": "threads",
}
"""Settings with an effect, and their defaults; that of `worker_pool` is "prefork" in Celery."""

WITHOUT_EFFECT: Final = frozenset(
    (
        *("beat_max_loop_interval", "beat_schedule_filename", "beat_sync_every"),
        *("broker_connection_max_retries", "broker_connection_retry"),
        *("broker_connection_retry_on_startup", "broker_connection_timeout", "broker_heartbeat"),
        *("broker_pool_limit", "redis_backend_health_check_interval", "redis_max_connections"),
        *("redis_retry_on_timeout", "redis_socket_connect_timeout", "redis_socket_keepalive"),
        *("redis_socket_timeout", "result_backend_always_retry", "result_backend_max_retries"),
        *("result_cache_max", "result_chord_join_timeout", "result_chord_retry_interval"),
        *("result_compression", "result_extended", "result_persistent"),
        *("task_compression", "task_default_delivery_mode", "task_inherit_parent_priority"),
        *("task_protocol", "task_publish_retry", "task_publish_retry_policy"),
        *("task_queue_max_priority", "task_remote_tracebacks", "task_send_sent_event"),
        *(
            "task_store_errors_even_if_ignored",
            "worker_cancel_long_running_tasks_on_connection_loss",
        ),
        *("worker_enable_remote_control", "worker_hijack_root_logger", "worker_log_color"),
        *("worker_log_format", "worker_lost_wait", "worker_prefetch_multiplier"),
        *("worker_proc_alive_timeout", "worker_redirect_stdouts", "worker_redirect_stdouts_level"),
        *("worker_send_task_events", "worker_state_db", "worker_task_log_format"),
    )
)
"""Settings that change nothing here, because what they tune is not there or is always so."""

_LATE: Final = (
    "a job is always acknowledged after it has run; for one that must not run twice, declare a "
    "task of tampu with @app.tampu.task(attempts=1)"
)
_BURIED: Final = (
    "a job that fails for good becomes a dead letter; replay it with `tampu dead replay`"
)
_JSON: Final = {"json", "application/json", "msgpack", "application/x-msgpack"}
_PLAIN: Final = "arguments and results are MessagePack, which carries what JSON does; use json"
_TUNING: Final = {
    *("visibility_timeout", "max_connections", "health_check_interval", "retry_on_timeout"),
    *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "queue_order_strategy"),
    *("fanout_prefix", "fanout_patterns", "max_retries", "interval_start", "interval_step"),
    "interval_max",
}

ONLY: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "accept_content": (lambda given: set(given) <= _JSON, _PLAIN),
    "beat_scheduler": (
        lambda given: given in {None, "celery.beat:PersistentScheduler"},
        "workers fire schedules; to change them at run time, use app.tampu.queue().schedules",
    ),
    "broker_transport_options": (
        lambda given: set(given or ()) <= _TUNING,
        "set what concerns the connection in the URL",
    ),
    "enable_utc": (lambda given: given is True, "set timezone instead"),
    "event_serializer": (lambda given: given in _JSON, _PLAIN),
    "result_accept_content": (lambda given: given is None or set(given) <= _JSON, _PLAIN),
    "result_backend_transport_options": (
        lambda given: set(given or ()) <= _TUNING,
        "set what concerns the connection in the URL of the broker",
    ),
    "result_serializer": (lambda given: given in _JSON, _PLAIN),
    "task_acks_late": (lambda given: given is True, _LATE),
    "task_acks_on_failure": (lambda given: given is True, _BURIED),
    "task_acks_on_failure_or_timeout": (lambda given: given is True, _BURIED),
    "task_acks_on_timeout": (lambda given: given is True, _BURIED),
    "task_create_missing_queues": (lambda given: given is True, "queues need no declaration"),
    "task_reject_on_worker_lost": (lambda given: given is True, _LATE),
    "task_serializer": (lambda given: given in _JSON, _PLAIN),
    "task_store_eager_result": (lambda given: given is False, "test with tampu.testing"),
    "worker_disable_rate_limits": (lambda given: given is False, "leave rate_limit out"),
}
"""Settings that allow only what tampu does in any case, with advice for other values."""

_PROCESSES: Final = "pass {} to `tampu worker`, with --processes"
REFUSED: Final[Mapping[str, str]] = {
    "beat_cron_starting_deadline": "declare it with @app.tampu.schedule(..., missed=...)",
    "broker_use_ssl": "use a URL that starts with rediss://",
    "redis_backend_use_ssl": "use a broker with a URL that starts with rediss://",
    "task_annotations": "set the options where the tasks are declared",
    "task_default_exchange": "name queues; there are no exchanges",
    "task_default_rate_limit": "set rate_limit where the tasks are declared",
    "task_default_routing_key": "name queues; there are no routing keys",
    "worker_autoscaler": "start more processes; concurrency costs nothing while it is idle",
    "worker_deduplicate_successful_tasks": "give jobs a key with @app.tampu.task(unique=Unique())",
    "worker_max_memory_per_child": _PROCESSES.format("--max-rss"),
    "worker_max_tasks_per_child": _PROCESSES.format("--max-jobs"),
}
"""Settings that are refused whatever their value is, with what to do instead."""

_PREFIXES: Final = ("beat_", "broker_", "redis_", "result_", "task_", "worker_")
_KNOWN: Final = {*USED, *WITHOUT_EFFECT, *ONLY, *REFUSED}
_POOLS: Final = ("prefork", "processes", "solo", "threads")
_SCHEMES: Final = ("redis", "rediss", "valkey", "valkeys", "unix", "embedded")
_OURS: Final = ("redis+sentinel", "redis+cluster")


class Settings:
    """The settings of an app, as attributes or items. Each is checked when it is set."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.__dict__["_values"] = dict(USED)
        self.__dict__["_on_change"] = on_change

    def __repr__(self) -> str:
        return f"<Settings: {', '.join(sorted(self._changed))}>"  # values may be secrets

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no setting {name!r} is set") from None

    def __setattr__(self, name: str, value: object) -> None:
        self.update({name: value})

    __getitem__, __setitem__ = __getattr__, __setattr__

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: object = None) -> Any:
        """The setting, or the default."""
        return self._values.get(name, default)

    def update(self, *given: Mapping[str, object], **named: object) -> None:
        """Change several settings; all of them or, if one is refused, none."""
        new = {name: value for each in (*given, named) for name, value in each.items()}
        before = dict(self._values)
        for name, value in new.items():
            check_setting(name, value)
        self._values.update(new)
        try:
            self._on_change()
        except BaseException:
            self.__dict__["_values"] = before
            raise

    def update_from(self, source: object, namespace: str | None) -> None:
        """Take the settings of an object, module or dict; see `Celery.config_from_object`."""
        prefix = "" if namespace is None else f"{namespace}_"
        items = source if isinstance(source, Mapping) else _attributes(source, prefix)
        named = {name: value for name, value in items.items() if name.startswith(prefix)}
        if namespace is not None:
            self.update({name.removeprefix(prefix).lower(): each for name, each in named.items()})
            return
        self.update({name: value for name, value in named.items() if _is_setting(name, value)})

    @property
    def _changed(self) -> list[str]:
        return [name for name, value in self._values.items() if USED.get(name) != value]


def check_setting(name: str, value: object) -> None:
    """Refuse a setting that tampu does not have, or a value that asks for what it does not do."""
    if name in REFUSED:
        raise NotSupported(f"the setting {name}", REFUSED[name])
    if name in ONLY:
        allows, advice = ONLY[name]
        if not allows(value):
            raise NotSupported(f"the setting {name} = {value!r}", advice)
    elif name not in _KNOWN:
        advice = "see the page Moving from Celery for the settings that it has"
        if name.isupper():
            advice = "write settings in lower case, such as broker_url and task_routes"
        hint = hint_of(name, _KNOWN, likeness=0.9)  # Celery has others with similar names
        raise NotSupported(f"the setting {name}{hint}", advice)
    if name == "worker_pool" and value not in _POOLS:
        advice = 'use "threads" or "prefork", or write async functions with @app.tampu.task'
        raise NotSupported(f"the setting worker_pool = {value!r}", advice)
    if name == "result_backend" and value is not None:
        _check_backend(str(value))


def _check_backend(url: str) -> None:
    scheme = url.partition("://")[0]
    if scheme not in {*_SCHEMES, *_OURS, "redis+socket", "sentinel", "rpc"}:
        advice = "results are kept on the server of the broker; leave the setting out"
        raise NotSupported(f"the result backend {scheme}", advice)


def server_url(broker: object) -> str | None:
    """The address of the server as tampu writes it; None: `TAMPU_URL`."""
    url = broker or os.environ.get("CELERY_BROKER_URL")
    if url is None:
        return None
    scheme, _, rest = str(url).partition("://")
    if scheme == "redis+socket":
        return f"unix://{rest}"
    if scheme == "sentinel":
        advice = "write redis+sentinel://host1,host2/service"
        raise NotSupported("a broker URL that starts with sentinel://", advice)
    if scheme == "memory":
        advice = "use embedded:PATH, or task_always_eager, or test with tampu.testing"
        raise NotSupported("the broker memory://", advice)
    if str(url).startswith("embedded:") or scheme in {*_SCHEMES, *_OURS}:
        return str(url)
    advice = "tampu needs Redis or Valkey: broker='redis://localhost:6379/0'"
    raise NotSupported(f"the broker {scheme}", advice)


def seconds_of(option: str, given: object) -> float:
    """A number of seconds, or a timedelta, as seconds."""
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    raise OptionError(option, given, "expected a number of seconds or a timedelta")


def result_ttl(settings: Settings) -> float:
    """How long results are kept, in seconds."""
    given = settings.result_expires
    if not given:
        advice = "results always expire; give a long time, such as timedelta(days=365)"
        raise NotSupported("results that never expire", advice)
    return seconds_of("result_expires", given)


def queue_names(settings: Settings) -> list[str]:
    """The names in `task_queues`: of a dict, of texts, or of kombu's queues."""
    given: Iterable[Any] = settings.task_queues or ()
    found = [each if isinstance(each, str) else str(each.name) for each in given]
    return [*found, settings.task_default_queue]


def _attributes(source: object, prefix: str) -> Mapping[str, object]:
    names = [name for name in dir(source) if name.startswith(prefix) and not name.startswith("_")]
    return {name: getattr(source, name) for name in names}


def _is_setting(name: str, value: object) -> bool:
    """Whether a name in a module is meant as a setting: unknown ones are refused, not left out."""
    if isinstance(value, ModuleType) or callable(value):
        return False
    return name in _KNOWN or name.startswith(_PREFIXES)
