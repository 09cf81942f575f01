"""The dashboard in a Django project, for staff."""

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final, TypeAlias

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections
from django.http import HttpRequest, parse_cookie
from starlette.routing import Mount, Router

from tampu.dashboard import Access, Dashboard
from tampu.django.backend import TampuBackend
from tampu.django.tasks_api import task_backends
from tampu.errors import MissingExtra, OptionError

Application: TypeAlias = Any
"""What `get_asgi_application` or `get_wsgi_application` has made, or what wraps it."""
_COOKIE: Final = b"cookie"


async def staff_access(scope: Mapping[str, Any]) -> Access:
    """Everything for users with `is_staff` who are logged in to Django, nothing for others."""
    cookies = [value for name, value in scope["headers"] if name == _COOKIE]
    return await sync_to_async(_access_of)(b"; ".join(cookies).decode("latin-1"))


def make_dashboard(backend: str = "default", **options: Any) -> Dashboard:  # noqa: ANN401 - as below
    """The dashboard of a backend of `TASKS`; options are those of `Dashboard`.

    By default for staff, and on the hosts of `ALLOWED_HOSTS`.
    """
    found = task_backends[backend]
    if not isinstance(found, TampuBackend):
        raise OptionError("backend", backend, "its BACKEND is not tampu.django.TampuBackend")
    hosts = [each for each in settings.ALLOWED_HOSTS if each != "*" and not each.startswith(".")]
    return Dashboard(found.app, **{"access": staff_access, "allowed_hosts": hosts, **options})


def mount_dashboard(
    application: Application,
    dashboard: Dashboard | None = None,
    *,
    path: str = "/jobs",
) -> Application:
    """The application with the dashboard under a path: in `asgi.py` or in `wsgi.py`.

    The dashboard is that of the default backend, unless another one is given. `MissingExtra` if it
    is for `wsgi.py` and the package a2wsgi is not installed.
    """
    if not path.startswith("/") or path.endswith("/"):
        raise OptionError("path", path, "expected a path such as /jobs")
    mounted = make_dashboard() if dashboard is None else dashboard
    if isinstance(application, WSGIHandler):
        return _WsgiMount(application, mounted, path, adapter=_load_a2wsgi().ASGIMiddleware)
    mounts = [Mount(path, mounted)]
    return Router(mounts, default=application, lifespan=lambda _: _keep_open(mounted))


@asynccontextmanager
async def _keep_open(dashboard: Dashboard) -> AsyncIterator[None]:
    async with dashboard:
        yield


class _WsgiMount:
    """Sends requests under a path to the dashboard, and all others to the application."""

    def __init__(
        self,
        application: Application,
        dashboard: Dashboard,
        path: str,
        *,
        adapter: Callable[[Dashboard], Application],
    ) -> None:
        self._application, self._dashboard, self._path = application, dashboard, path
        self._new_adapter = adapter
        self._adapter: tuple[int, Application] | None = None  # with the id of its process
        self._lock = threading.Lock()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        asked = environ.get("PATH_INFO", "")
        if asked != self._path and not asked.startswith(f"{self._path}/"):
            answer: Iterable[bytes] = self._application(environ, start_response)
            return answer
        script = f"{environ.get('SCRIPT_NAME', '')}{self._path}"
        inside = {**environ, "SCRIPT_NAME": script, "PATH_INFO": asked.removeprefix(self._path)}
        found: Iterable[bytes] = self._adapt()(inside, start_response)
        return found

    def _adapt(self) -> Application:
        """The dashboard as a WSGI app, made in the process that answers: it has a thread."""
        with self._lock:
            if self._adapter is None or self._adapter[0] != os.getpid():
                self._adapter = os.getpid(), self._new_adapter(self._dashboard)
            return self._adapter[1]


def _load_a2wsgi() -> Any:  # noqa: ANN401 - a module
    try:
        return import_module("a2wsgi")
    except ModuleNotFoundError as error:
        raise MissingExtra(None, "a2wsgi") from error


def _access_of(cookies: str) -> Access:
    """What the user may do who has these cookies; in a thread, as it asks the database."""
    close_old_connections()
    try:
        session = parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME)
        if session is None:
            return Access.nothing()
        request = HttpRequest()
        engine = import_module(settings.SESSION_ENGINE)
        request.session = engine.SessionStore(session)
        user = get_user(request)
        if not (user.is_active and user.is_staff):
            return Access.nothing()
        return Access.full(user=user.get_username())
    finally:
        close_old_connections()
