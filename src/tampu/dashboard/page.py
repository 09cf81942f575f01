"""What a page is made of: how it is registered, and what it is given to work with.

A module of pages has `PAGES`, `OPERATIONS` and `RESOURCES`; `app.py` lists the modules. Every path
is one word, and names travel in the query: links are then relative, and any prefix works.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import urlencode

from tampu.dashboard.security import clamp
from tampu.errors import OptionError, TampuError
from tampu.util.options import Word
from tampu.wire.audit import AuditEntry
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from starlette.responses import Response

    from tampu.dashboard.access import Access, Action, Redaction
    from tampu.dashboard.source import DataSource

W = TypeVar("W", bound=Word)


class RequestRefused(TampuError):
    """A request that gets an error page: its status, and a sentence for its reader."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence
        super().__init__(sentence)


def not_found(what: str) -> RequestRefused:
    """The error for something that is not there, or that the visitor may not see."""
    return RequestRefused(404, what)


def bad_request(sentence: str) -> RequestRefused:
    """The error for a query that makes no sense."""
    return RequestRefused(400, sentence)


# --- registering --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nav:
    """An entry of the navigation: its label, its place from left to right, and its key after g."""

    label: str
    place: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: `load` returns what `template` shows.

    `live` names blocks of the template that are sent again when they change, each in an element
    with `data-live="NAME"`. `load` is then called every `every_s`, once for all who look at it.
    """

    path: str  # one word; "" is the first page
    template: str
    load: Callable[[View], Awaitable[Mapping[str, object]]]
    nav: Nav | None = None
    under: str | None = None  # the path of the entry to highlight, if not its own
    live: tuple[str, ...] = ()
    every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation has done: a sentence, and the page to go on with.

    With a script the visitor stays where the form was, unless `leave` is set.
    """

    sentence: str
    go: str
    leave: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Changes something: `run` is called for a POST. It checks `view.demand(action, queue)`."""

    path: str
    run: Callable[[View], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Anything else that is read with GET, such as a download; `respond` makes the response."""

    path: str
    respond: Callable[[View], Awaitable[Response]]


Registered: TypeAlias = Page | Operation | Resource


# --- working ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """One visitor at one page: what was asked for, what is allowed, and where to read it."""

    path: str
    pairs: tuple[tuple[str, str], ...]  # of the query, or of the form that was sent
    access: Access
    source: DataSource
    redaction: Redaction
    nav: tuple[Page, ...] = field(default=(), repr=False)

    @property
    def params(self) -> dict[str, str]:
        """The parameters by name; of several with the same name, the last."""
        return dict(self.pairs)

    def all(self, name: str) -> list[str]:
        """Every value of a parameter, such as of the ticked rows of a table."""
        return [value for given, value in self.pairs if given == name]

    def text(self, name: str, default: str = "") -> str:
        """A parameter, without blanks around it."""
        return self.params.get(name, default).strip()

    def number(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        """A whole number, clamped; 400 if it is none."""
        given = self.text(name)
        if not given:
            return default
        try:
            return clamp(int(given[:20]), least, most)
        except ValueError:
            raise bad_request(f"{name} must be a whole number.") from None

    def choice(self, name: str, default: W) -> W:
        """One of the members of an enum; 400 if it is none of them."""
        given = self.text(name)
        if not given:
            return default
        try:
            return type(default)(given)
        except ValueError:
            known = ", ".join(map(str, type(default)))
            raise bad_request(f"{name} must be one of {known}.") from None

    async def queue(self, name: str = "name") -> QueueKeys:
        """The queue that a parameter names; 404 if it is hidden or does not exist."""
        given = self.params.get(name, "")
        try:
            keys = QueueKeys(given)
        except OptionError:
            raise not_found("There is no such queue.") from None
        if not self.access.sees(given) or not await self.source.has_queue(keys):
            raise not_found("There is no such queue.")
        return keys

    async def queues(self) -> list[str]:
        """The names of all queues that the visitor may see."""
        return [name for name in await self.source.queue_names() if self.access.sees(name)]

    def may(self, action: Action, queue: str) -> bool:
        """Whether the visitor may do something to a queue."""
        return self.access.may(action, queue)

    def demand(self, action: Action, queue: str) -> None:
        """Raise 404 if the visitor may not see the queue, 403 if not do this to it."""
        if not self.access.sees(queue):
            raise not_found("There is no such queue.")
        if not self.access.may(action, queue):
            raise RequestRefused(403, f"You may not do this here: {action}.")

    async def note(self, action: Action | str, queue: str, what: str, *, count: int = 1) -> None:
        """Write down what the visitor did, for the page that shows it."""
        entry = AuditEntry(
            user=self.access.user, action=str(action), queue=queue, what=what, count=count
        )
        await self.source.note(entry)

    def here(self, **changes: str | int | None) -> str:
        """A link to this page with some parameters changed; None removes one."""
        return link(self.path, **{**self.params, **changes})


def link(path: str, **params: str | int | None) -> str:
    """A relative link to a page; empty parameters are left out."""
    given = {name: value for name, value in params.items() if value not in {None, ""}}
    query = urlencode(given, errors="surrogatepass")
    return f"{path or './'}{query and f'?{query}'}"
