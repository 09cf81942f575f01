"""tampu in Flask: jobs run in the context of the application, `flask tampu worker` runs them.

Needs the extra `tampu[flask]`.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from tampu.app import App
from tampu.errors import MissingExtra, OptionError, WrongContext
from tampu.job import Job
from tampu.server.connect import check_target
from tampu.util.options import check_type
from tampu.web.dashboards import check_dashboard

try:
    import click
    from flask import Flask
    from flask.cli import AppGroup, ScriptInfo
    from flask.ctx import AppContext
    from werkzeug.middleware.dispatcher import DispatcherMiddleware
except ModuleNotFoundError as missing:
    raise MissingExtra("flask", missing.name or "flask") from missing

if TYPE_CHECKING:
    from tampu.dashboard import Dashboard

__all__ = ["Tampu"]

_NAME: Final = "tampu"
_PASSED_ON: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}


class Tampu:
    """Makes the jobs of an app a part of a Flask application.

    Each job runs inside of the application's context, for plain tasks in their own thread: there
    are `current_app` and `g`, and `teardown_appcontext` closes what was opened. The setting
    `TAMPU_URL` is the server of an app that names none. A `dashboard` is mounted at
    `dashboard_path`. Without an application, call `init_app` later.
    """

    def __init__(
        self,
        jobs: App,
        app: Flask | None = None,
        *,
        dashboard: "Dashboard | None" = None,
        dashboard_path: str = "/jobs",
    ) -> None:
        check_type("jobs", jobs, App, accepted="an App")
        check_dashboard(dashboard)
        if not dashboard_path.startswith("/") or dashboard_path.endswith("/"):
            raise OptionError("dashboard_path", dashboard_path, "expected a path such as /jobs")
        self.jobs = jobs
        self._dashboard, self._dashboard_path = dashboard, dashboard_path
        self._app: Flask | None = None
        jobs.add_middleware(self.enter_context)
        if app is not None:
            self.init_app(app)

    def __reduce__(self) -> tuple[Callable[[], "Tampu"], tuple[()]]:
        # The middleware of a task that runs in a child process, which makes its own application.
        return _find_extension, ()

    def init_app(self, app: Flask) -> None:
        """Become a part of an application; of the last one, if there are several."""
        check_type("app", app, Flask, accepted="a Flask application")
        url = app.config.get("TAMPU_URL")
        if url is not None and self.jobs.url is None:
            check_target(url, self.jobs.credentials)
            self.jobs.url = url
        app.extensions[_NAME] = self
        app.cli.add_command(_make_commands())
        if self._dashboard is not None:
            mounted = _DashboardOnWsgi(self._dashboard)
            dispatch = DispatcherMiddleware(app.wsgi_app, {self._dashboard_path: mounted})
            app.wsgi_app = dispatch  # type: ignore[method-assign] # as Flask's docs say
        self._app = app
        _extensions.add(self)

    def enter_context(self, job: Job[Any]) -> AppContext:
        """The context of the application, for a job."""
        if self._app is None:
            reason = (
                "call init_app(app) before; start a worker with `flask --app MODULE tampu worker`, "
                "which does that"
            )
            raise WrongContext(f"run job {job.id} in a Flask application", reason)
        return self._app.app_context()


_extensions: Final[WeakSet[Tampu]] = WeakSet()
"""Those with an application, in this process."""


def _find_extension() -> Tampu:
    """The extension of this process, or of the application that `flask` was started for."""
    if not _extensions:
        app = ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
        found: Tampu | None = app.extensions.get(_NAME)
        if found is None:
            raise OptionError("FLASK_APP", app.import_name, "it does not use tampu.web.flask.Tampu")
        return found
    return next(iter(_extensions))


def __getattr__(name: str) -> object:
    """`jobs`: the app whose tasks `flask tampu worker` runs, in each of its processes."""
    if name == "jobs":
        return _find_extension().jobs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _make_commands() -> click.Group:
    commands = AppGroup(_NAME, help="Run the jobs of this application.")

    @commands.command(
        "worker", with_appcontext=False, context_settings=_PASSED_ON, add_help_option=False
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run_worker(context: click.Context, arguments: tuple[str, ...]) -> None:
        """Run jobs until Ctrl-C or SIGTERM, with the options of `tampu worker`."""
        info = context.find_object(ScriptInfo)
        given = (
            {} if info is None or not info.app_import_path else {"FLASK_APP": info.app_import_path}
        )
        command = [sys.executable, "-m", "tampu", "worker", f"{__name__}:jobs", *arguments]
        # In place of this process, so that signals reach it.
        os.execve(sys.executable, command, os.environ | given)  # noqa: S606 - no shell

    return commands


class _DashboardOnWsgi:
    """The dashboard as a WSGI app. Its thread starts with the first request, after any fork."""

    def __init__(self, dashboard: "Dashboard") -> None:
        self._dashboard = dashboard
        self._lock = threading.Lock()
        self._made: tuple[int, Any] | None = None  # with the id of its process

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 - WSGI
        """Answer a request."""
        answer: Iterable[bytes] = self._adapter()(environ, start_response)
        return answer

    def _adapter(self) -> Any:  # noqa: ANN401 - of a2wsgi, whose types are its own
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = os.getpid(), _adapt(self._dashboard)
            return self._made[1]


def _adapt(dashboard: Any) -> Any:  # noqa: ANN401 - as above
    try:
        from a2wsgi import ASGIMiddleware  # noqa: PLC0415 - only for a dashboard
    except ModuleNotFoundError as error:
        raise MissingExtra("flask", "a2wsgi") from error
    return ASGIMiddleware(dashboard)
