"""What FastAPI marks parameters with, recognised by its shape: FastAPI is never imported here.

A task understands `Depends`. What only a web request can fill is refused.
"""

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from msgspec import Struct

from tampu.errors import OptionError

_PARAMS: Final = "fastapi.params"
_DEPENDS: Final = frozenset({(_PARAMS, "Depends")})
_READERS: Final = frozenset({(_PARAMS, "Param"), (_PARAMS, "Body")})
"""The bases of `Query`, `Path`, `Header`, `Cookie`, `Body`, `Form` and `File`."""
_PARTS_OF_A_REQUEST: Final = frozenset(
    {
        ("starlette.requests", "HTTPConnection"),  # the base of Request and WebSocket
        ("starlette.responses", "Response"),
        ("starlette.background", "BackgroundTasks"),
        ("starlette.datastructures", "UploadFile"),
        ("fastapi.security.oauth2", "SecurityScopes"),
        ("litestar.connection.base", "ASGIConnection"),
    }
)


class WebOnly(OptionError):
    """A parameter that only a web request can fill."""


class MarkedFactory(Struct, frozen=True):
    """The factory that a `Depends` of FastAPI names, and whether its users share one value."""

    factory: Callable[..., Any]
    is_shared: bool


def find_mark(hint: object, default: object) -> MarkedFactory | None:
    """What a `Depends` of FastAPI on a parameter says, if there is one.

    Without a factory of its own, the annotated class is the factory.
    """
    annotated, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    for each in (default, *reversed(marks)):  # in FastAPI the last one counts
        if _is_a(type(each), _DEPENDS):
            return _read_mark(each, annotated)
    return None


def is_mark(default: object) -> bool:
    """Whether a default is a `Depends` of FastAPI."""
    return _is_a(type(default), _DEPENDS)


def refuse_web_parameter(name: str, hint: object, default: object, *, owner: object) -> None:
    """Raise `OptionError` for a parameter that only a web request can fill."""
    annotated, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    wanted = [type(each) for each in (default, *marks) if _is_a(type(each), _READERS)]
    wanted += [each for each in _classes_of(annotated) if _is_a(each, _PARTS_OF_A_REQUEST)]
    if wanted:
        asker = getattr(owner, "__qualname__", type(owner).__qualname__)
        raise WebOnly(
            "parameter",
            name,
            f"{asker} wants a {wanted[0].__name__} of a web request, and a job has none; "
            "pass what is needed as an argument of the task",
        )


def _read_mark(mark: Any, annotated: object) -> MarkedFactory:  # noqa: ANN401 - of FastAPI
    factory = annotated if mark.dependency is None else mark.dependency
    if getattr(mark, "scopes", None):
        problem = "a job has no user whose scopes could be checked; check them before you enqueue"
        raise WebOnly("Security", list(mark.scopes), problem)
    if getattr(mark, "max_concurrency", None) is not None:
        problem = "it limits requests; give the task limits=[Concurrency(...)] instead"
        raise WebOnly("max_concurrency", mark.max_concurrency, problem)
    if not callable(factory):
        problem = "Depends() without a factory needs a parameter that is annotated with a class"
        raise WebOnly("annotation", factory, problem)
    return MarkedFactory(factory, bool(mark.use_cache))


def _classes_of(hint: object) -> list[type]:
    """The classes of an annotation: itself, or the members of a union."""
    if get_origin(hint) in {Union, UnionType}:
        return [each for member in get_args(hint) for each in _classes_of(member)]
    kind = get_origin(hint) or hint
    return [kind] if isinstance(kind, type) else []


def _is_a(kind: type, names: frozenset[tuple[str, str]]) -> bool:
    """Whether a class, or one that it is derived from, has one of these modules and names."""
    return any((each.__module__, each.__name__) in names for each in kind.__mro__)
