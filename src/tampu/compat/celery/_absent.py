"""What Celery has and tampu does not have under the same name, with the way to do it here."""

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from tampu.compat.celery.exceptions import NotImportable, NotSupported

_RUN_WORKER: Final = "run `tampu worker MODULE:APP`, or AppWorker(app.tampu)"
_COMMAND: Final = (
    "the command `celery` cannot run this app: start `tampu worker MODULE:APP`, which also fires "
    "the schedules"
)
_SERVER: Final = "use app.tampu.queue(name), or your own client of the server"
_EVENTS: Final = "read the events of the queue with tampu.QueueEvents"
_INFO: Final = "look at the job: app.tampu.queue(name).job(id).info()"
_GET: Final = "use get() and state"
_FLOW: Final = "use app.tampu.flow(), and app.tampu.flow_run_sync(id) to read it later"
_OWN: Final = "keep the results that apply_async returns"
_MAP: Final = "use app.tampu.flow().map(task.tampu, items), or a group"
_LOGGING: Final = "tampu leaves logging alone: set it up where your module is imported"
_AS_IT_IS: Final = "use signature(), which returns a signature as it is"
_START: Final = "use signals, or App(lifespan=...) of tampu"
_KEPT: Final = "results are kept on the server of the broker"
_RESULTS: Final = "use a list of results"
_LOGGER: Final = "use get_task_logger, or logging.getLogger"
_INSIDE: Final = "it belongs to the inside of Celery; app.tampu has what there is instead"


def _names(advice: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), advice)


ABSENT: Final[Mapping[str, Mapping[str, str]]] = {
    "app": {
        **_names(_RUN_WORKER, "Worker WorkController worker_main start Beat"),
        **_names(_SERVER, "connection connection_for_read connection_for_write"),
        **_names(_SERVER, "connection_or_acquire broker_connection default_connection pool amqp"),
        **_names(_SERVER, "default_producer producer_or_acquire producer_pool backend"),
        **_names(_EVENTS, "events"),
        **_names(_LOGGING, "log"),
        **_names("give queues to `tampu worker` with --queue", "select_queues"),
        **_names("use app.conf.update", "add_defaults config_from_cmdline annotations"),
        **_names(_START, "steps on_configure on_init"),
        **_names("a process that was forked connects by itself", "on_after_fork"),
        **_names(_COMMAND, "user_options"),
        **_names(_RESULTS, "ResultSet"),
        **_names("arguments are MessagePack, which runs no code", "setup_security"),
        **_names("use datetime.now(app.conf.timezone)", "now timezone uses_utc_timezone"),
        **_names(_INSIDE, "amqp_cls autofinalize backend_cls bugreport builtin_fixups clock"),
        **_names(_INSIDE, "configured control_cls create_task_cls current_worker_task either"),
        **_names(_INSIDE, "events_cls finalized fixups loader loader_cls log_cls namespace oid"),
        **_names(_INSIDE, "prepare_config registry_cls strict_typing subclass_with_self task_cls"),
        **_names(_INSIDE, "thread_oid type_checker use_fast_trace_task set_as_current Pickler"),
        **_names(_INSIDE, "IS_WINDOWS IS_macOS SYSTEM"),
    },
    "Task": {
        **_names(_MAP, "map starmap chunks"),
        **_names("build a flow with app.tampu.flow(); a job can start another one", "replace"),
        **_names("use a batch: app.tampu.batch_sync()", "add_to_chord"),
        **_names("add another job with apply_async", "signature_from_request subtask_from_request"),
        **_names("write a decorator, or middleware of tampu", "add_around annotate"),
        **_names(
            "report with tampu.current_job().progress(percent), or yield from a task of tampu and "
            "follow it with job.stream()",
            "update_state",
        ),
        **_names(_EVENTS, "send_event"),
        **_names("a job whose worker dies always runs again", "retry_on_worker_lost"),
        **_names("results are read with AsyncResult", "backend add_trail"),
        **_names(_INSIDE, "OperationalError Request Strategy bind from_config on_bound on_replace"),
        **_names(_INSIDE, "pop_request push_request request_stack shadow_name start_strategy"),
    },
    "AsyncResult": {
        **_names(_OWN, "children collect get_leaf iterdeps as_list as_tuple build_graph graph"),
        **_names("give the call to link=, or use a chain", "then on_ready"),
        **_names(_GET, "maybe_throw maybe_reraise throw exists TimeoutError"),
        **_names(_INFO, "args kwargs worker queue date_done"),
        **_names(_KEPT, "backend supports_native_join"),
        **_names("cancel jobs by their ids", "revoke_by_stamped_headers"),
    },
    "GroupResult": {
        **_names(_FLOW, "save restore delete"),
        **_names("give the call to link=, or use a chord", "then on_ready"),
        **_names("use the list `results`", "add remove discard update clear as_tuple"),
        **_names("use get()", "iter_native maybe_throw maybe_reraise"),
        **_names("keep the app", "app parent backend supports_native_join"),
    },
    "signature": {
        **_names("use app.tampu.flow(), whose nodes can be arguments of others", "freeze"),
        **_names("send it, and keep what apply_async returns", "id root_id parent_id AsyncResult"),
        **_names("use signature(name, args, kwargs)", "from_dict reprcall subtask_type"),
        **_names(
            "give link_error to apply_async, or use node.outcome in app.tampu.flow()", "on_error"
        ),
        **_names("build a new one", "replace"),
        **_names("use clone(args, kwargs)", "partial"),
        **_names("use set(immutable=...)", "set_immutable"),
        **_names("give each signature its own with sig.set(countdown=...)", "skew"),
        **_names("give headers with apply_async(headers=...)", "stamp stamp_links"),
        **_names("use app.tasks[sig.task]", "type"),
        **_names(_INSIDE, "TYPES append_to_list_option election extend_list_option flatten_links"),
        **_names(_INSIDE, "register_type"),
    },
    "app.control": {
        **_names("start a worker with --queue NAME", "add_consumer"),
        **_names("pause the queue with `tampu queue pause NAME`", "cancel_consumer"),
        **_names("use `tampu inspect`, or the dashboard", "inspect ping"),
        **_names("workers take no commands", "broadcast Mailbox mailbox election heartbeat"),
        **_names("start more or fewer worker processes", "pool_grow pool_shrink autoscale"),
        **_names("send SIGHUP to `tampu worker`", "pool_restart"),
        **_names("use `tampu queue purge NAME`", "purge discard_all"),
        **_names("use `tampu limits`, which changes limits while workers run", "rate_limit"),
        **_names("send SIGTERM to `tampu worker`", "shutdown"),
        **_names("use revoke(id, terminate=True)", "terminate revoke_by_stamped_headers"),
        **_names("set time_limit where the task is declared", "time_limit"),
        **_names("events are always written", "enable_events disable_events"),
    },
    "signals": {
        **_names(_EVENTS, "before_task_publish after_task_publish task_sent task_received"),
        **_names(_EVENTS, "task_revoked task_unknown task_rejected task_internal_error"),
        **_names("workers fire schedules; use worker_init", "beat_init beat_embedded_init"),
        **_names(_LOGGING, "setup_logging after_setup_logger after_setup_task_logger"),
        **_names("use worker_init", "celeryd_init celeryd_after_setup"),
        **_names("use worker_shutdown", "worker_shutting_down"),
        **_names("use worker_process_init", "worker_before_create_process"),
        **_names("use `tampu inspect`, which shows heartbeats", "heartbeat_sent"),
        **_names("declare async tasks with @app.tampu.task", "eventlet_pool_started"),
        **_names("declare async tasks with @app.tampu.task", "eventlet_pool_preshutdown"),
        **_names("declare async tasks with @app.tampu.task", "eventlet_pool_postshutdown"),
        **_names("declare async tasks with @app.tampu.task", "eventlet_pool_apply"),
    },
    "celery": {
        **_names(_AS_IT_IS, "maybe_signature subtask"),
        **_names(_MAP, "chunks xmap xstarmap"),
        **_names(_COMMAND, "bin beat worker"),
        **_names(_START, "bootsteps"),
        **_names(_KEPT, "backends"),
        **_names(_EVENTS, "events"),
        **_names("run `tampu doctor`", "bugreport"),
        **_names(_INSIDE, "apps concurrency contrib fixups loaders local platforms security"),
    },
    "celery.canvas": {
        **_names(_AS_IT_IS, "maybe_signature maybe_subtask subtask"),
        **_names(_MAP, "chunks xmap xstarmap"),
    },
    "celery.result": {
        **_names(_RESULTS, "ResultSet"),
        **_names("keep the ids, and use AsyncResult(id)", "result_from_tuple"),
        **_names("use allow_join_result", "denied_join_result assert_will_not_block"),
        **_names("use AsyncResult, EagerResult or GroupResult", "ResultBase"),
    },
    "celery.utils.log": {
        **_names(_LOGGER, "base_logger task_logger worker_logger"),
        **_names(_LOGGING, "ColorFormatter LoggingProxy mlevel"),
        **_names(_LOGGING, "get_multiprocessing_logger reset_multiprocessing_logger"),
    },
}
"""By what has the name: names, each with what to do instead."""


def refuse(owner: str, name: str) -> NoReturn:
    """Raise `NotSupported` for a name that Celery has there, else `AttributeError`."""
    advice = ABSENT[owner].get(name)
    if advice is not None:
        raise NotSupported(f"{owner}.{name}", advice)
    raise AttributeError(f"{owner} has no attribute {name!r}")


def refuse_imports(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module: names that Celery's module has are `NotImportable`."""

    def refuse_import(name: str) -> NoReturn:
        advice = ABSENT[module].get(name)
        if advice is not None:
            raise NotImportable(f"{module}.{name}", advice)
        raise AttributeError(f"module 'tampu.compat.{module}' has no attribute {name!r}")

    return refuse_import
