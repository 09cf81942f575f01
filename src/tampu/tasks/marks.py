"""What marks a parameter that the worker fills, and no caller gives."""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from tampu.errors import OptionError

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
