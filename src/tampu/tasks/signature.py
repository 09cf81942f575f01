"""A function's parameters: which ones the caller fills, and which ones the worker injects."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
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
from tampu.tasks.web_marks import find_mark, is_mark, refuse_web_parameter

Scope: TypeAlias = Literal["job", "app"]


class Dependency(Struct, frozen=True):
    """A value that a factory creates: once per job, or once per worker."""

    factory: Callable[..., Any]
    scope: Scope = "job"
    use: object = None  # what tells uses apart that must not share a value

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise OptionError("factory", self.factory, "expected a function that creates the value")
        if type(self.factory).__hash__ is None:
            raise OptionError("factory", type(self.factory), "must be hashable")
        if self.scope not in {"job", "app"}:
            raise OptionError("scope", self.scope, 'expected "job" or "app"')

    @property
    def name(self) -> str:
        """The factory's name, for messages."""
        return str(getattr(self.factory, "__qualname__", self.factory))


def Depends(  # noqa: N802 - reads like the type next to it
    factory: Callable[..., Any], *, scope: Scope = "job"
) -> Any:  # noqa: ANN401 - may be the default of a parameter of any type
    """Inject the value that a factory creates.

    Write `db: Annotated[Db, Depends(get_db)]`, or `db: Db = Depends(get_db)`. The factory may be a
    plain or async function, or a generator, which continues after the job has run. It may depend on
    other factories and on the `Job`. With `scope="app"` the value is created when the worker starts
    and closed when it stops.
    """
    return Dependency(factory, scope)


class _Injected:
    __slots__ = ()

    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Final[Any] = _Injected()
"""The default of a `Job` parameter: tells type checkers that callers leave it out."""

NO_DEFAULT: Final = inspect.Parameter.empty
NO_ANNOTATION: Final = inspect.Signature.empty
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameter(Struct, frozen=True):
    """A parameter that the caller fills."""

    name: str
    hint: Any
    default: object
    by_position: bool

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is NO_DEFAULT


class Signature(Struct, frozen=True):
    """The parameters of a function: those for the caller, for the job and for dependencies."""

    parameters: tuple[Parameter, ...]
    job_parameters: tuple[str, ...]
    dependencies: Mapping[str, Dependency]
    returns: Any  # NO_ANNOTATION if it has none

    @property
    def returns_nothing(self) -> bool:
        """Whether a result of None only says that the function has returned."""
        return any(self.returns is each for each in (NO_ANNOTATION, None, type(None)))

    @property
    def yields(self) -> Any:  # noqa: ANN401 - an annotation
        """What a generator yields; Any if its annotation does not say so."""
        return next(iter(get_args(self.returns)), Any)

    @property
    def injected(self) -> frozenset[str]:
        """The parameters that the worker fills."""
        return frozenset((*self.job_parameters, *self.dependencies))


def check_parameters(function: Callable[..., object]) -> frozenset[str]:
    """Refuse a function that cannot be a task; the parameters whose default is injected.

    Does not look at annotations: they may name something that is defined later.
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some built-in functions
        problem = "its parameters cannot be inspected; wrap it in a Python function"
        raise OptionError("function", function, problem) from None
    for number, each in enumerate(parameters.values()):
        if each.kind not in _NAMED:
            problem = "not allowed for a task, because arguments are sent by name"
            raise OptionError("parameter", str(each), problem)
        if number == 0 and each.name in {"self", "cls"}:
            problem = "not allowed for a task; use a function or a static method"
            raise OptionError("parameter", each.name, problem)
    return frozenset(
        each.name
        for each in parameters.values()
        if each.default is INJECTED or isinstance(each.default, Dependency) or is_mark(each.default)
    )


def signature_of(function: Callable[..., object]) -> Signature:
    """The signature of a function; `OptionError` if an annotation cannot be resolved."""
    hints = _type_hints(function)
    parameters: list[Parameter] = []
    job_parameters: list[str] = []
    dependencies: dict[str, Dependency] = {}
    for name, each in _inspect_parameters(function).items():
        hint = _resolve_alias(hints.get(name, Any))
        refuse_web_parameter(name, hint, each.default, owner=function)
        dependency = _find_dependency(hint, each.default)
        if dependency is not None:
            dependencies[name] = dependency
        elif _is_job(hint):
            job_parameters.append(name)
        elif each.default is INJECTED:
            problem = f"parameter {name} must be annotated with Job or Depends(...)"
            raise OptionError("default", INJECTED, problem)
        else:
            by_position = each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters.append(Parameter(name, hint, each.default, by_position))
    returns = hints.get("return", NO_ANNOTATION)
    return Signature(tuple(parameters), tuple(job_parameters), dependencies, returns)


def _inspect_parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some built-in types, used as a factory
        return {}


def _type_hints(function: Callable[..., object]) -> dict[str, Any]:
    try:
        return get_type_hints(_annotated_callable(function), include_extras=True)
    except NameError as error:
        name = getattr(function, "__qualname__", function)
        problem = f"not defined at run time in the module of {name}; import it there"
        raise OptionError("annotation", error.name, problem) from None
    except (AttributeError, SyntaxError, TypeError) as error:  # text that is not a type
        problem = f"an annotation cannot be resolved: {error}"
        raise OptionError("function", function, problem) from None


def _annotated_callable(function: Any) -> Any:  # noqa: ANN401 - any callable
    """The function that has the annotations of a callable."""
    if isinstance(function, type):
        return function.__init__  # type: ignore[misc] # only inspected
    if isinstance(function, functools.partial):
        return _annotated_callable(function.func)
    return function if inspect.isroutine(function) else type(function).__call__


def _resolve_alias(hint: Any) -> Any:  # noqa: ANN401 - an annotation
    """The annotation that a `type` statement names."""
    return hint.__value__ if type(hint).__name__ == "TypeAliasType" else hint


def _find_dependency(hint: object, default: object) -> Dependency | None:
    if isinstance(default, Dependency):
        return default
    if get_origin(hint) is Annotated:
        for each in get_args(hint)[1:]:
            if isinstance(each, Dependency):
                return each
    marked = find_mark(hint, default)
    if marked is None:
        return None
    return Dependency(marked.factory, use=None if marked.is_shared else object())


def _is_job(hint: object) -> bool:
    """Whether it is `Job` or `Job[...]`, also in a union or in `Annotated`."""
    origin = get_origin(hint)
    if origin in {Union, UnionType, Annotated}:
        return any(map(_is_job, get_args(hint)))
    is_hashable = getattr(hint, "__hash__", None) is not None
    return is_hashable and Job in {hint, origin}


def module_name(module: str) -> str:
    """The name of a module; that of the program's own one as others would import it."""
    if module != "__main__":
        return module
    main = sys.modules[module]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return module if file is None else Path(file).stem


def function_name(function: Callable[..., object]) -> str:
    """The function's short name: the same in `__main__`, and easy to write in other programs."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise OptionError("name", name, "required, because the function has no name of its own")
    return name
