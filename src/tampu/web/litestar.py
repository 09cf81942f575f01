"""tampu in Litestar: opens an app with the application, injects it, mounts the dashboard.

Needs the extra `tampu[litestar]`.
"""

import keyword
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from tampu.app import App
from tampu.app_worker import AppWorker
from tampu.errors import MissingExtra, OptionError
from tampu.tasks.app_queue import AppQueue
from tampu.util.options import check_flag, check_type
from tampu.web.dashboards import check_dashboard
from tampu.wire.names import check_queue_name

try:
    from litestar import Litestar, asgi
    from litestar.config.app import AppConfig
    from litestar.di import Provide
    from litestar.plugins import InitPlugin
except ModuleNotFoundError as missing:
    raise MissingExtra("litestar", missing.name or "litestar") from missing

if TYPE_CHECKING:
    from tampu.dashboard import Dashboard

__all__ = ["TampuPlugin"]

_QUEUES: Final = 'a dict such as {"letters": "emails"}'


class TampuPlugin(InitPlugin):
    """Opens an app with the application, and closes it with it.

    Handlers get it as the parameter `jobs`, or under the name `inject_as`, and the queues that
    `queues` names by their parameters: `queues={"letters": "emails"}`. With `worker=True` its tasks
    run in the same process, which is meant for development. A `dashboard` is mounted at
    `dashboard_path` and closed with the application.
    """

    def __init__(
        self,
        app: App,
        *,
        inject_as: str = "jobs",
        queues: Mapping[str, str] | None = None,
        worker: bool = False,
        dashboard: "Dashboard | None" = None,
        dashboard_path: str = "/jobs",
    ) -> None:
        check_type("app", app, App, accepted="an App")
        check_flag("worker", worker)
        check_type("queues", queues, Mapping | None, accepted=_QUEUES)
        check_dashboard(dashboard)
        self._app, self._worker = app, worker
        self._injected = {_check_parameter("inject_as", inject_as): self._provide_app()}
        for parameter, name in (queues or {}).items():
            if _check_parameter("queues", parameter) in self._injected:
                raise OptionError("queues", parameter, "the parameter is taken by the app")
            self._injected[parameter] = self._provide_queue(check_queue_name(name))
        self._dashboard, self._dashboard_path = dashboard, dashboard_path

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add to the configuration of the application."""
        app_config.dependencies.update(self._injected)
        app_config.signature_namespace.update({"App": App, "AppQueue": AppQueue})
        app_config.lifespan.append(self._open)
        if self._dashboard is not None:
            mount = asgi(self._dashboard_path, is_mount=True, copy_scope=True)
            app_config.route_handlers.append(mount(self._dashboard.__call__))
        return app_config

    def _provide_app(self) -> Provide:
        def provide() -> App:
            return self._app

        return Provide(provide, sync_to_thread=False)

    def _provide_queue(self, name: str) -> Provide:
        async def provide() -> AppQueue:  # async: a queue belongs to an event loop
            return self._app.queue(name)

        return Provide(provide)

    @asynccontextmanager
    async def _open(self, _: Litestar) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._dashboard is not None:
                await stack.enter_async_context(self._dashboard)
            await stack.enter_async_context(self._app)
            if self._worker:
                await stack.enter_async_context(AppWorker(self._app))
            yield


def _check_parameter(option: str, given: object) -> str:
    """Return what a parameter of a handler can be called, or raise `OptionError`."""
    if not isinstance(given, str) or not given.isidentifier() or keyword.iskeyword(given):
        raise OptionError(option, given, "expected the name of a parameter")
    return given
