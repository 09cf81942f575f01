"""Web apps with the dashboard mounted in them, on servers of their own in threads."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import django
import uvicorn
from a2wsgi import ASGIMiddleware
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar, asgi
from litestar import get as litestar_get
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import make_server

from tampu.dashboard import Dashboard
from tests.waiting import block_until

PREFIX = "/admin/jobs"
HELLO = "hello from the app"
"""What every app answers at `/hello`, beside the dashboard."""


@asynccontextmanager
async def keep_open(dashboard: Dashboard) -> AsyncIterator[None]:
    async with dashboard:
        yield


# --- apps that speak ASGI -----------------------------------------------------------------------


def in_starlette(dashboard: Dashboard) -> Any:  # noqa: ANN401 - an app of another package
    async def hello(_: object) -> PlainTextResponse:
        return PlainTextResponse(HELLO)

    routes = [Route("/hello", hello), Mount(PREFIX, dashboard)]
    return Starlette(routes=routes, lifespan=lambda _: keep_open(dashboard))


def in_fastapi(dashboard: Dashboard) -> Any:  # noqa: ANN401
    app = FastAPI(lifespan=lambda _: keep_open(dashboard))
    app.get("/hello")(lambda: HELLO)
    app.mount(PREFIX, dashboard)
    return app


def in_litestar(dashboard: Dashboard) -> Any:  # noqa: ANN401
    @litestar_get("/hello", sync_to_thread=False)
    def hello() -> str:
        return HELLO

    mounted = asgi(PREFIX, is_mount=True, copy_scope=True)(dashboard.__call__)
    # Its logging is off: it would set up the root logger of the tests.
    return Litestar([hello, mounted], on_shutdown=[dashboard.close], logging_config=None)


def in_django_asgi(dashboard: Dashboard) -> Any:  # noqa: ANN401
    set_up_django()
    mounts, lifespan = [Mount(PREFIX, dashboard)], lambda _: keep_open(dashboard)
    return Router(mounts, default=get_asgi_application(), lifespan=lifespan)


# --- apps that speak WSGI -----------------------------------------------------------------------


def in_flask(mounted: Any) -> Any:  # noqa: ANN401
    app = Flask("shop")
    app.add_url_rule("/hello", view_func=lambda: HELLO)
    return DispatcherMiddleware(app.wsgi_app, {PREFIX: mounted})


def in_django_wsgi(mounted: Any) -> Any:  # noqa: ANN401
    set_up_django()
    return DispatcherMiddleware(get_wsgi_application(), {PREFIX: mounted})


def hello_of_django(_: HttpRequest) -> HttpResponse:
    return HttpResponse(HELLO)


urlpatterns = [path("hello", hello_of_django)]


def set_up_django() -> None:
    """Django as a project sets it up, once in a process."""
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])
        django.setup()


# --- servers ------------------------------------------------------------------------------------


@contextmanager
def run_uvicorn(app: Any) -> Iterator[str]:  # noqa: ANN401
    """Serve an ASGI app; its URL. At the end the server is stopped in good order."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        block_until(lambda: server.started, within=60, sentence="uvicorn has started")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def run_wsgi(app: Any, *, threaded: bool) -> Iterator[str]:  # noqa: ANN401
    """Serve a WSGI app, with a thread for each request or with one for all; its URL."""
    server = make_server("127.0.0.1", 0, app, threaded=threaded)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop that a2wsgi would start for itself and never end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def serve_wsgi(
    make_app: Callable[[Any], Any], dashboard: Dashboard, *, threaded: bool = True
) -> Iterator[str]:
    """Serve a WSGI app with the dashboard in it."""
    with loop_in_thread() as loop:
        asgi_app: Any = dashboard  # a2wsgi has types of its own for ASGI
        app = make_app(ASGIMiddleware(asgi_app, loop=loop))
        try:
            with run_wsgi(app, threaded=threaded) as url:
                yield url
        finally:
            asyncio.run_coroutine_threadsafe(dashboard.close(), loop).result(20)


@dataclass(frozen=True, slots=True)
class Stack:
    """A framework, and the server that it runs on."""

    name: str
    serve: Callable[[Dashboard], AbstractContextManager[str]]
    """Serves an app with the dashboard in it; gives the app's URL."""


def _on_uvicorn(make_app: Callable[[Dashboard], Any]) -> Callable[[Dashboard], Any]:
    return lambda dashboard: run_uvicorn(make_app(dashboard))


def _on_wsgi(make_app: Callable[[Any], Any]) -> Callable[[Dashboard], Any]:
    return lambda dashboard: serve_wsgi(make_app, dashboard)


ASGI_STACKS = (
    Stack("starlette", _on_uvicorn(in_starlette)),
    Stack("fastapi", _on_uvicorn(in_fastapi)),
    Stack("litestar", _on_uvicorn(in_litestar)),
    Stack("django-asgi", _on_uvicorn(in_django_asgi)),
)
WSGI_STACKS = (
    Stack("flask", _on_wsgi(in_flask)),
    Stack("django-wsgi", _on_wsgi(in_django_wsgi)),
)
