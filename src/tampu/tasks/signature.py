"""What marks a parameter that the worker fills, and no caller gives."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Struct

from tampu.errors import OptionError
from tampu.job import Job

Scope: TypeAlias = Literal["job", "app"]


class Dependency(Struct, frozen=True):
    """A value that a factory makes: for each job anew, or once for a worker's life."""

    factory: Callable[..., Any]
    scope: Scope = "job"

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise OptionError("factory", self.factory, "must be a function that makes the value")
        if type(self.factory).__hash__ is None:
            accepted = "must be hashable: what it makes is looked up by it"
            raise OptionError("factory", type(self.factory), accepted)
        if self.scope not in {"job", "app"}:
            raise OptionError("scope", self.scope, 'expected "job" or "app"')

    @property
    def name(self) -> str:
        """The factory, in words."""
        return str(getattr(self.factory, "__qualname__", self.factory))


def Depends(  # noqa: N802 - reads like the type that it stands beside
    factory: Callable[..., Any], *, scope: Scope = "job"
) -> Any:  # noqa: ANN401 - may stand as the default of a parameter of any type
    """Have a parameter filled with what a factory makes.

    It stands in `Annotated[Db, Depends(get_db)]` or as a default, `db: Db = Depends(get_db)`.
    A factory is a function of any kind; a generator's rest runs when the job has run. It may
    depend on others, and on the `Job`. With `scope="app"` it is made when the worker starts and
    closed when it stops.
    """
    return Dependency(factory, scope)


class _Injected:
    __slots__ = ()

    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Final[Any] = _Injected()
"""The default of a `Job` parameter, so that type checkers know that no caller gives it."""


def is_mark(default: object) -> bool:
    """Whether it stands for a value that a worker gives."""
    return default is INJECTED or isinstance(default, Dependency)


NO_DEFAULT: Final = inspect.Parameter.empty
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameter(Struct, frozen=True):
    """A parameter that a caller gives."""

    name: str
    hint: Any
    default: object
    by_position: bool

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is NO_DEFAULT


class Signature(Struct, frozen=True):
    """The parameters of a function, by who fills them."""

    given: tuple[Parameter, ...]
    jobs: tuple[str, ...]  # those that get the running job
    dependencies: Mapping[str, Dependency]
    returns: Any

    @property
    def injected(self) -> frozenset[str]:
        """Those that a worker fills."""
        return frozenset((*self.jobs, *self.dependencies))


def check_parameters(function: Callable[..., object]) -> frozenset[str]:
    """Refuse parameters that have no name on the wire; the names of those with a mark as default.

    Looks at no annotation: those may name what is defined further down.
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some built-in ones
        raise OptionError("function", function, "does not tell its parameters") from None
    marked: set[str] = set()
    for number, each in enumerate(parameters.values()):
        if each.kind not in _NAMED:
            accepted = "cannot be a parameter of a task: arguments travel by their names"
            raise OptionError("parameter", str(each), accepted)
        if number == 0 and each.name in {"self", "cls"}:
            accepted = "cannot be a parameter of a task: a worker has no object to call a method of"
            raise OptionError("parameter", each.name, accepted)
        if is_mark(each.default):
            marked.add(each.name)
    return frozenset(marked)


def signature_of(function: Callable[..., object]) -> Signature:
    """The shape of a function; `OptionError` if an annotation cannot be read."""
    hints = _hints(function)
    given: list[Parameter] = []
    jobs: list[str] = []
    dependencies: dict[str, Dependency] = {}
    for name, each in _parameters(function).items():
        hint = hints.get(name, Any)
        dependency = _dependency_in(hint, each.default)
        if dependency is not None:
            dependencies[name] = dependency
        elif _takes_job(hint):
            jobs.append(name)
        elif each.default is INJECTED:
            raise OptionError("default", INJECTED, f"cannot fill {name}, which is no Job")
        else:
            by_position = each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            given.append(Parameter(name, hint, each.default, by_position))
    return Signature(tuple(given), tuple(jobs), dependencies, hints.get("return", Any))


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some built-in types, as a factory
        return {}


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    try:
        return get_type_hints(_hinted(function), include_extras=True)
    except NameError as error:
        accepted = (
            f"is not defined in the module of {getattr(function, '__qualname__', function)}: "
            "a task's annotations must be importable there when it runs"
        )
        raise OptionError("annotation", error.name, accepted) from None
    except (AttributeError, SyntaxError, TypeError) as error:  # a text that is no type
        accepted = f"has an annotation that cannot be read: {error}"
        raise OptionError("function", function, accepted) from None


def _hinted(function: Any) -> Any:  # noqa: ANN401 - whatever can be called
    """Where the annotations of a callable are."""
    if isinstance(function, type):
        return function.__init__  # type: ignore[misc] # only looked at
    if isinstance(function, functools.partial):
        return _hinted(function.func)
    return function if inspect.isroutine(function) else type(function).__call__


def _dependency_in(hint: object, default: object) -> Dependency | None:
    if isinstance(default, Dependency):
        return default
    if get_origin(hint) is Annotated:
        for each in get_args(hint)[1:]:
            if isinstance(each, Dependency):
                return each
    return None


def _takes_job(hint: object) -> bool:
    """Whether it is `Job`, `Job[...]`, or one of these or None."""
    origin = get_origin(hint)
    if origin in {Union, UnionType, Annotated}:
        return any(map(_takes_job, get_args(hint)))
    return Job in {hint, origin} if _hashable(hint) else False


def _hashable(hint: object) -> bool:
    return getattr(hint, "__hash__", None) is not None
