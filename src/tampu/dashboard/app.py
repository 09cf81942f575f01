"""The dashboard as an ASGI app: which pages there are, and the way of a request to one of them."""

import inspect
from collections.abc import Iterable, Mapping, MutableMapping
from types import ModuleType
from typing import Any, Final, Protocol, Self, runtime_checkable
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tampu.dashboard.access import Access, AccessFunction, Credentials, Redaction, Show
from tampu.dashboard.live import Live, WatchedPage
from tampu.dashboard.page import (
    Operation,
    Page,
    Registered,
    RequestRefused,
    Resource,
    View,
    bad_request,
    not_found,
)
from tampu.dashboard.pages import (
    alerts,
    dead,
    flows,
    job,
    jobs,
    limits,
    metrics,
    overview,
    queue,
    schedules,
    search,
    task,
    workers,
)
from tampu.dashboard.render import STATIC, Renderer
from tampu.dashboard.security import (
    MAX_BODY_BYTES,
    Receive,
    RequestGuard,
    Send,
    check_allowed_hosts,
    send_text,
)
from tampu.dashboard.source import DataSource
from tampu.errors import OptionError, ServerError
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target

MODULES: Final[tuple[ModuleType, ...]] = (
    overview,
    queue,
    limits,
    task,
    jobs,
    job,
    dead,
    flows,
    schedules,
    workers,
    alerts,
    search,
    metrics,
)
"""The modules with pages. Each has some of `PAGES`, `OPERATIONS` and `RESOURCES`."""

_MOST_PARAMS: Final = 1100  # a form may carry the ids of a page of ticked rows
_ACCESS: Final = "tampu.access"
_A2WSGI: Final = "wsgi_environ"  # what a2wsgi adds to the scope of a request
_EVENTS: Final = "text/event-stream"
_NEEDS_ACCESS: Final = (
    "expected a function that returns an Access for each request, Credentials(...), or "
    "Access.full() to let in everybody who can reach it"
)


@runtime_checkable
class HasServer(Protocol):
    """What is needed of an `App`."""

    url: Target
    credentials: CredentialCallback | None

    @property
    def queues(self) -> list[str]:
        """The queues of its tasks."""


class Dashboard:
    """The dashboard of an app, or of all queues at a URL, as an ASGI app.

    `access` says who may see and do what: a function that gets the ASGI scope of a request and
    returns an `Access`, `Credentials`, or one `Access` for everybody. `read_only` takes away every
    action. `allowed_hosts` are the names it answers to, beside localhost and IP addresses. `show`
    says which keys of payloads are shown: names, or a function; by default all but those that sound
    like secrets. It connects on first use; `close` disconnects.
    """

    def __init__(
        self,
        app_or_url: HasServer | Target = None,
        *,
        access: AccessFunction | Access | None = None,
        read_only: bool = False,
        allowed_hosts: Iterable[str] = (),
        show: Show = None,
        group: str = "default",
    ) -> None:
        if access is None or not (isinstance(access, Access) or callable(access)):
            raise OptionError("access", access, _NEEDS_ACCESS)
        self._access = access
        self._read_only = read_only
        self._redaction = Redaction(show)
        self._source = _open_source(app_or_url, group)
        self._renderer = Renderer()
        self._registered: list[Registered] = _parts_of(MODULES)
        self._pages = {each.path: each for each in self._registered if isinstance(each, Page)}
        self._nav = _navigation(self._pages.values())
        self.live = Live(self._render_live)
        self._routes = self._build()
        allowed = check_allowed_hosts(allowed_hosts)
        self._guarded = RequestGuard(self._check_access, allowed_hosts=allowed)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._guarded(scope, receive, send)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the live updates and disconnect. It connects again when it is used again."""
        await self.live.close()
        await self._source.close()

    # --- from a request to a page ---------------------------------------------------------------

    async def _check_access(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        access = await self._access_of(scope)
        if access.is_nothing:
            if isinstance(self._access, Credentials):
                ask = (b"www-authenticate", b'Basic realm="tampu", charset="UTF-8"')
                await send_text(send, 401, "Who are you?", headers=[ask])
            else:
                await send_text(send, 404, "Not found.")
            return
        path, place = _find_place(scope)
        if place is not None:
            await send_text(send, 307, "See the slash.", headers=[(b"location", place)])
            return
        await self._routes({**scope, "path": path, _ACCESS: access}, receive, send)

    async def _access_of(self, scope: Mapping[str, Any]) -> Access:
        access: object = self._access
        if not isinstance(access, Access):
            access = self._access(scope)  # type: ignore[operator]
            if inspect.isawaitable(access):
                access = await access
            if not isinstance(access, Access):
                raise OptionError("access", type(access), "the function must return an Access")
        return access.only_reading() if self._read_only else access

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def _build(self) -> Starlette:
        routes: list[BaseRoute] = [
            Mount("/static", _KeptFiles(directory=STATIC)),
            Route("/live", self._stream, methods=["GET"]),
        ]
        for each in self._registered:
            method = "POST" if isinstance(each, Operation) else "GET"
            routes.append(Route(f"/{each.path}", _Endpoint(self, each).answer, methods=[method]))
        handlers: dict[Any, Any] = {
            RequestRefused: self._refuse,
            ServerError: self._away,
            HTTPException: self._refuse_http,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False  # a redirect would name the host and lose the prefix
        return app

    def view(self, path: str, pairs: Iterable[tuple[str, str]], access: Access) -> View:
        """A visitor at a page."""
        return View(path, tuple(pairs), access, self._source, self._redaction, self._nav)

    async def show(self, page: Page, view: View) -> Response:
        """A page."""
        return HTMLResponse(self._renderer.page(page, view, await page.load(view)))

    async def operate(self, operation: Operation, view: View, request: Request) -> Response:
        """Do what a form asks for. A script gets a sentence, a plain form the next page."""
        done = await operation.run(view)
        self._source.forget()
        self.live.look_now()
        if _wants_json(request):
            go = done.go if done.leave else None
            return JSONResponse({"sentence": done.sentence, "go": go})
        return RedirectResponse(done.go, status_code=303)

    # --- live updates ---------------------------------------------------------------------------

    async def _stream(self, request: Request) -> Response:
        pairs = _query(request)
        of = dict(pairs).get("of", "")
        page = self._pages.get("" if of == "overview" else of)
        if page is None or not page.live:
            raise not_found("There is no such page.")
        given = tuple(each for each in pairs if each[0] != "of")
        watch = WatchedPage(page.path, given, request.scope[_ACCESS], page.every_s)
        if _A2WSGI in request.scope:  # a stream would hold a thread, or the only one
            return Response(await self.live.snapshot(watch), media_type=_EVENTS)
        if self.live.is_full:
            raise RequestRefused(503, "Too many pages are open.")
        # Proxies such as nginx would hold events back.
        headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
        return StreamingResponse(self.live.stream(watch), media_type=_EVENTS, headers=headers)

    async def _render_live(self, watch: WatchedPage) -> dict[str, str]:
        page = self._pages[watch.path]
        view = self.view(page.path, watch.pairs, watch.access)
        return self._renderer.regions(page, view, await page.load(view))

    # --- errors ---------------------------------------------------------------------------------

    async def _refuse(self, request: Request, error: Exception) -> Response:
        refused = error if isinstance(error, RequestRefused) else bad_request(str(error))
        return self._problem(request, refused.status, refused.sentence)

    async def _refuse_http(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        sentences = {404: "There is no such page.", 405: "This cannot be done with this method."}
        return self._problem(request, status, sentences.get(status, "The request makes no sense."))

    async def _away(self, request: Request, error: Exception) -> Response:
        return self._problem(request, 503, str(error), retry=True)

    def _problem(
        self, request: Request, status: int, sentence: str, *, retry: bool = False
    ) -> Response:
        if _wants_json(request):
            return JSONResponse({"sentence": sentence}, status_code=status)
        html = self._renderer.problem(status, sentence, nav=self._nav, retry=retry)
        return HTMLResponse(html, status_code=status)


class _KeptFiles(StaticFiles):
    """Files that browsers may keep: a link to one changes when the file does."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401 - as above it
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


class _Endpoint:
    """The way from a route to what is registered for it."""

    def __init__(self, dashboard: Dashboard, registered: Registered) -> None:
        self._dashboard, self._registered = dashboard, registered

    async def answer(self, request: Request) -> Response:
        registered, dashboard = self._registered, self._dashboard
        is_post = isinstance(registered, Operation)
        pairs = await _form(request) if is_post else _query(request)
        view = dashboard.view(registered.path, pairs, request.scope[_ACCESS])
        if isinstance(registered, Operation):
            return await dashboard.operate(registered, view, request)
        if isinstance(registered, Resource):
            return await registered.respond(view)
        return await dashboard.show(registered, view)


def _open_source(app_or_url: HasServer | Target, group: str) -> DataSource:
    if isinstance(app_or_url, HasServer):
        app = app_or_url
        return DataSource(
            app.url, credentials=app.credentials, group=group, known=lambda: app.queues
        )
    return DataSource(app_or_url, group=group)


def _parts_of(modules: Iterable[ModuleType]) -> list[Registered]:
    kinds = ("PAGES", "OPERATIONS", "RESOURCES")
    return [each for module in modules for kind in kinds for each in getattr(module, kind, ())]


def _navigation(pages: Iterable[Page]) -> tuple[Page, ...]:
    listed = [page for page in pages if page.nav is not None]
    return tuple(sorted(listed, key=lambda page: page.nav.place if page.nav else 0))


def _find_place(scope: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """The path of the page that is asked for, and where it is if the prefix lacks its slash.

    Relative links need the slash. The place is relative too: any proxy may be between.
    """
    path, prefix = scope["path"], scope.get("root_path", "")
    if path == "":
        return path, b"./"
    if prefix and path == prefix:
        return path, f"{path.rpartition('/')[2]}/".encode()
    asked = scope.get("raw_path") or b""
    if path.endswith("/") and asked and not asked.endswith(b"/"):
        # Litestar takes the prefix away and adds a slash that nobody has sent.
        return path.removesuffix("/"), asked.rpartition(b"/")[2] + b"/" if path == "/" else None
    return path, None


def _wants_json(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


def _query(request: Request) -> list[tuple[str, str]]:
    return _parse(request.scope.get("query_string", b""))


async def _form(request: Request) -> list[tuple[str, str]]:
    """The fields of a form, which is at most a megabyte."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RequestRefused(413, "The form is too large.")
    return _parse(body)


def _parse(raw: bytes) -> list[tuple[str, str]]:
    try:
        text = raw.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_PARAMS)
    except ValueError:
        raise bad_request("The query cannot be read.") from None
