"""What FastAPI marks parameters with: `Depends` is understood, what needs a request is refused."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any

import fastapi
import pytest
from fastapi import (
    BackgroundTasks,
    Body,
    Cookie,
    File,
    Form,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    Response,
    Security,
    UploadFile,
    WebSocket,
)
from fastapi.responses import JSONResponse
from fastapi.security import OAuth2PasswordBearer, SecurityScopes
from litestar import Request as LitestarRequest
from starlette.requests import HTTPConnection
from typing_extensions import TypeAliasType

from tampu import App, Depends, OptionError
from tampu.tasks.depends import dependency_steps
from tampu.tasks.signature import Dependency, signature_of


class Pager:
    def __init__(self, limit: int = 10) -> None:
        self.limit = limit


def get_db() -> str:
    return "db"


def get_user(db: Annotated[str, fastapi.Depends(get_db)]) -> str:
    return f"user of {db}"


def found_in(function: Callable[..., object]) -> dict[str, object]:
    """The factories of a function's parameters."""
    return {name: each.factory for name, each in signature_of(function).dependencies.items()}


def test_depends_of_fastapi_is_found_as_default_and_in_annotated() -> None:
    def task(
        a: int, b: Annotated[str, fastapi.Depends(get_user)], c: str = fastapi.Depends(get_db)
    ) -> None: ...

    assert found_in(task) == {"b": get_user, "c": get_db}
    assert [each.name for each in signature_of(task).parameters] == ["a"]


def test_without_a_factory_the_annotated_class_is_it() -> None:
    def task(a: Annotated[Pager, fastapi.Depends()], b: Pager = fastapi.Depends()) -> None: ...

    assert found_in(task) == {"a": Pager, "b": Pager}


def test_an_alias_of_an_annotation_is_resolved() -> None:
    # As `type Db = Annotated[str, Depends(get_db)]` in Python 3.12.
    alias: Any = TypeAliasType("alias", Annotated[str, fastapi.Depends(get_db)])

    def task(db: str) -> None: ...

    task.__annotations__["db"] = alias
    assert found_in(task) == {"db": get_db}


def test_security_without_scopes_is_a_dependency() -> None:
    def task(user: Annotated[str, Security(get_user)]) -> None: ...

    assert found_in(task) == {"user": get_user}


def test_a_mark_of_our_own_and_one_of_fastapi_share_the_value_of_a_factory() -> None:
    def task(a: str = fastapi.Depends(get_db), b: str = Depends(get_db)) -> None: ...

    first, second = signature_of(task).dependencies.values()
    assert first == second == Dependency(get_db)


def test_without_the_cache_each_use_has_a_value_of_its_own() -> None:
    def outer(db: str = fastapi.Depends(get_db, use_cache=False)) -> str:
        return db

    def task(
        a: str = fastapi.Depends(get_db),
        b: str = fastapi.Depends(get_db, use_cache=False),
        c: str = fastapi.Depends(outer),
        d: str = fastapi.Depends(get_db),
    ) -> None: ...

    steps = dependency_steps(signature_of(task).dependencies.values())
    assert [step.dependency.factory for step in steps] == [get_db, get_db, get_db, outer]


def test_factories_in_a_circle_are_refused_without_the_cache_too() -> None:
    def first(second: str) -> str:
        return second

    def second(first: str = fastapi.Depends(first, use_cache=False)) -> str:
        return first

    again: Any = fastapi.Depends(second, use_cache=False)
    first.__defaults__ = (again,)
    with pytest.raises(OptionError, match="the dependencies form a circle"):
        dependency_steps([Dependency(first)])


REQUESTS: list[tuple[Any, Any, str]] = [
    (Request, ..., "Request"),
    (Request | None, ..., "Request"),
    (WebSocket, ..., "WebSocket"),
    (HTTPConnection, ..., "HTTPConnection"),
    (Response, ..., "Response"),
    (JSONResponse, ..., "JSONResponse"),
    (BackgroundTasks, ..., "BackgroundTasks"),
    (UploadFile, ..., "UploadFile"),
    (SecurityScopes, ..., "SecurityScopes"),
    (LitestarRequest[Any, Any, Any], ..., "Request"),
    (str, Query(), "Query"),
    (str, Query("x"), "Query"),
    (str, Header(), "Header"),
    (str, Cookie(), "Cookie"),
    (str, Path(), "Path"),
    (str, Body(), "Body"),
    (str, Form(), "Form"),
    (bytes, File(), "File"),
    (Annotated[str, Header()], ..., "Header"),
    (Annotated[str | None, Query(max_length=3)], None, "Query"),
]


@pytest.mark.parametrize(("hint", "default", "named"), REQUESTS)
def test_what_only_a_request_has_is_refused_when_the_task_is_declared(
    hint: object, default: object, named: str
) -> None:
    def get_agent(agent: str) -> str:
        return agent

    get_agent.__annotations__["agent"] = hint
    get_agent.__defaults__ = None if default is ... else (default,)

    def get_visitor(agent: str = fastapi.Depends(get_agent)) -> str:
        return agent

    async def task(visitor: str = fastapi.Depends(get_visitor)) -> None: ...

    with pytest.raises(OptionError) as refused:
        App().task(task)
    where = f"{test_what_only_a_request_has_is_refused_when_the_task_is_declared.__name__}.<locals>"
    assert str(refused.value) == (
        f"Invalid parameter 'agent': {where}.get_agent wants a {named} of a web request, and a job "
        "has none; pass what is needed as an argument of the task."
    )
    with pytest.raises(OptionError, match=f"get_agent wants a {named} of a web request"):
        App().task(get_agent)  # as a parameter of the task itself


def test_a_security_scheme_of_fastapi_is_refused() -> None:
    scheme = OAuth2PasswordBearer(tokenUrl="token")

    async def task(token: str = fastapi.Depends(scheme)) -> None: ...

    with pytest.raises(OptionError, match=r"OAuth2PasswordBearer wants a (HTTPConn|Req)"):
        App().task(task)


def test_scopes_are_refused() -> None:
    async def task(user: str = Security(get_user, scopes=["orders"])) -> None: ...

    with pytest.raises(OptionError, match=r"Invalid Security \['orders'\]: a job has no user"):
        App().task(task)


@pytest.mark.skipif(
    "max_concurrency" not in inspect.signature(fastapi.Depends).parameters,
    reason="this FastAPI has no such limit",
)
def test_a_limit_for_requests_is_refused() -> None:
    limited: Any = fastapi.Depends(get_db, max_concurrency=5)

    async def task(db: str = limited) -> None: ...

    with pytest.raises(OptionError, match=r"Invalid max_concurrency 5: .*limits=\[Concurrency"):
        App().task(task)


def test_a_missing_factory_is_refused() -> None:
    async def task(db: Pager | None = fastapi.Depends()) -> None: ...

    with pytest.raises(OptionError, match="needs a parameter that is annotated with a class"):
        App().task(task)


def test_what_is_defined_later_is_looked_at_on_first_use() -> None:
    app = App()

    async def task(visitor: str) -> None: ...

    task.__annotations__["visitor"] = "Visitor"
    declared = app.task(task)
    globals()["Visitor"] = Annotated[str, fastapi.Depends(_asks)]
    try:
        with pytest.raises(OptionError, match="_asks wants a Request"):
            _ = declared.definition
    finally:
        del globals()["Visitor"]


def _asks(request: Request) -> str:
    raise HTTPException(401, str(request))


def test_a_class_that_looks_like_one_of_theirs_is_left_alone() -> None:
    class Request:
        pass

    def get_request(request: Request = Depends(Request)) -> Request:
        return request

    async def task(request: Request = Depends(get_request)) -> None: ...

    assert App().task(task).definition.steps


def test_fastapi_is_not_imported() -> None:
    code = (
        "import sys\nfrom tampu import App, Depends\napp = App()\n"
        "@app.task\ndef task(a: int, b: int = Depends(int)) -> None: ...\n"
        "task.definition\nprint({'fastapi', 'starlette'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
