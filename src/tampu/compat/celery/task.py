"""Tasks as in Celery: called, sent with `delay` and `apply_async`, retried with `self.retry`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from tampu.compat.celery import _running, _sending
from tampu.compat.celery._absent import refuse
from tampu.compat.celery._running import Context, ExceptionInfo
from tampu.compat.celery._sending import SendOptions
from tampu.compat.celery.canvas import Signature
from tampu.compat.celery.exceptions import MaxRetriesExceededError, NotSupported, Retry
from tampu.compat.celery.result import AsyncResult, EagerResult
from tampu.util.clock import now_ms
from tampu.util.ids import new_id

if TYPE_CHECKING:
    from tampu.compat.celery._declared import DeclaredTask
    from tampu.compat.celery.app import Celery

__all__ = ["Task"]

MORE_ATTEMPTS: Final = 25
"""Attempts of a job whose task allows fewer retries: some may end with their worker."""


class Task:
    """A task. Subclass it for `base=`; options stand as attributes, as in Celery."""

    name: str = ""
    queue: str | None = None
    priority: int | None = None
    expires: float | datetime | None = None
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: Iterable[type[Exception]] = ()
    dont_autoretry_for: Iterable[type[Exception]] = ()
    retry_kwargs: ClassVar[Mapping[str, Any]] = {}
    retry_backoff: float = False
    retry_backoff_max: float = 600
    retry_jitter: bool = True
    time_limit: float | None = None
    soft_time_limit: float | None = None
    rate_limit: str | float | None = None
    ignore_result: bool | None = None
    track_started: bool | None = None
    throws: Iterable[type[Exception]] = ()
    serializer = "json"
    typing = True
    trail = True
    send_events = True
    resultrepr_maxsize = 1024
    store_eager_result = False
    # Always so; anything else is refused when a task is declared.
    acks_late = True
    acks_on_failure = True
    acks_on_timeout = True
    acks_on_failure_or_timeout = True
    reject_on_worker_lost = True
    store_errors_even_if_ignored = True
    abstract = True
    MaxRetriesExceededError = MaxRetriesExceededError

    _app: Celery | None = None
    _run: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"

    def __getattr__(self, name: str) -> NoReturn:
        refuse("Task", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, without a job."""
        return _running.call_directly(self, args, kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The function of the task; a subclass may define it."""
        if self._run is None:
            raise NotImplementedError("tasks must define the run method")
        return self._run(*args, **kwargs)

    # --- declaring ------------------------------------------------------------------------------

    def set_function(self, function: Callable[..., Any], *, bind: bool) -> None:
        """Make it the task of a function, which with `bind` gets the task first."""
        self._run = MethodType(function, self) if bind else function
        update_wrapper(self, function, updated=())

    @property
    def app(self) -> Celery:
        """The app that it belongs to."""
        if self._app is None:
            advice = "create the app before a shared task is used: app = Celery(...)"
            raise NotSupported(f"using {self!r} without an app", advice)
        return self._app

    @app.setter
    def app(self, app: Celery) -> None:
        self._app = app

    @cached_property
    def tampu(self) -> DeclaredTask:
        """The task of tampu that it stands for: for `app.tampu`, flows and schedules."""
        return self.app.declared(self)

    @property
    def body(self) -> Callable[..., Any]:
        """The function whose parameters are those of the task."""
        return self.run if self._run is None else self._run

    @property
    def has_own_call(self) -> bool:
        """Whether a base class has a `__call__` of its own."""
        return type(self).__call__ is not Task.__call__

    @cached_property
    def positional(self) -> list[str]:
        """The parameters that can be given by position."""
        parameters = inspect.signature(self.body).parameters.values()
        return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]

    @property
    def queue_name(self) -> str:
        """The queue that its jobs are added to."""
        return self.tampu.queue

    @property
    def time_limits(self) -> tuple[float | None, float | None]:
        """The hard and the soft time limit: its own, or those of the app."""
        conf = self.app.conf
        hard = conf.task_time_limit if self.time_limit is None else self.time_limit
        soft = conf.task_soft_time_limit if self.soft_time_limit is None else self.soft_time_limit
        return hard, soft

    @property
    def attempts(self) -> int | None:
        """How many attempts its jobs have at most; None: no limit."""
        return None if self.max_retries is None else max(MORE_ATTEMPTS, self.max_retries + 2)

    # --- running --------------------------------------------------------------------------------

    @property
    def request(self) -> Context:
        """The run that is going on; `called_directly` outside of any."""
        return _running.request_of(self)

    def retry(
        self,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: object,
    ) -> NoReturn:
        """Run the job again later: raises `Retry`, or after the last retry `exc`.

        Without `exc`, the error that is being handled, or `MaxRetriesExceededError`.
        """
        if args is not None or kwargs is not None or options or not throw:
            advice = "a job is run again as it is; add another job with apply_async"
            raise NotSupported("self.retry with args, kwargs, throw=False or job options", advice)
        request = self.request
        if request.called_directly:
            raise exc or Retry("Task can be retried", None)
        most = self.max_retries if max_retries is None else max_retries
        if most is not None and request.retries >= most:
            text = f"Can't retry {self.name}[{request.id}]"
            raise exc or MaxRetriesExceededError(text)
        if self.attempts is not None and (most is None or most + 1 > self.attempts):
            advice = f"declare the task with max_retries={most}"
            raise NotSupported(f"self.retry(max_retries={most})", advice)
        wait_s = self.default_retry_delay if countdown is None else countdown
        if eta is not None:
            wait_s = max(0.0, (self.app.aware(eta).timestamp() - now_ms() / 1000))
        raise Retry(exc=exc, when=wait_s)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called before each run; for subclasses, as are the others."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Called after a run that succeeded."""

    def on_retry(
        self,
        exc: BaseException,
        task_id: str,
        args: Any,
        kwargs: Any,
        einfo: ExceptionInfo,
    ) -> None:
        """Called after a run that asked for another one."""

    def on_failure(
        self,
        exc: BaseException,
        task_id: str,
        args: Any,
        kwargs: Any,
        einfo: ExceptionInfo,
    ) -> None:
        """Called after a run that failed."""

    def after_return(
        self,
        status: str,
        retval: Any,
        task_id: str,
        args: Any,
        kwargs: Any,
        einfo: Any,
    ) -> None:
        """Called after a run that succeeded or failed."""

    # --- sending --------------------------------------------------------------------------------

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult | EagerResult:
        """Add a job with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        link: Any = None,
        link_error: Any = None,
        **options: Any,
    ) -> AsyncResult | EagerResult:
        """Add a job. Raises `ArgumentError` if the arguments do not fit."""
        given = SendOptions(task_id, link, link_error, options)
        if self.app.conf.task_always_eager:
            return self.apply(args, kwargs, task_id=task_id, link=link, link_error=link_error)
        return _sending.send(self, args or (), kwargs or {}, given)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        link: Any = None,
        link_error: Any = None,
        task_id: str | None = None,
        retries: int = 0,
        throw: bool | None = None,
        **options: Any,
    ) -> EagerResult:
        """Run it here and now, with its retries, and return how it ended."""
        _sending.check_eager(options)
        throw = self.app.conf.task_eager_propagates if throw is None else throw
        context = Context(
            id=task_id or new_id(now_ms()),
            task=self.name,
            args=tuple(args or ()),
            kwargs=dict(kwargs or {}),
            retries=retries,
            is_eager=True,
            called_directly=False,
            delivery_info={"is_eager": True},
        )
        self.tampu.definition.arguments.bind(tuple(context.args), context.kwargs)
        return _sending.run_eagerly(self, context, throw=throw, links=(link, link_error))

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802 - Celery's name
        """The result of the job with this id."""
        return AsyncResult(task_id, app=self.app)

    # --- signatures -----------------------------------------------------------------------------

    def signature(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        immutable: bool = False,
        **options: Any,
    ) -> Signature:
        """A call of this task, to be sent later or put into a chain, group or chord."""
        return Signature(
            self.name,
            tuple(args or ()),
            dict(kwargs or {}),
            options=options,
            app=self._app,
            immutable=immutable,
        )

    subtask = signature

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """A signature with these arguments."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """The same, and it takes no result of what runs before it."""
        return self.signature(args, kwargs, immutable=True)
