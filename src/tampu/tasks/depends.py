"""Which factories a function needs, and in what order; decided here, acted on elsewhere."""

import inspect
from collections.abc import Iterable
from enum import Enum, auto

from msgspec import Struct

from tampu.errors import OptionError
from tampu.tasks.signature import Dependency, signature_of


class FactoryKind(Enum):
    """How a factory gives its value."""

    PLAIN = auto()
    ASYNC = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()

    @property
    def needs_loop(self) -> bool:
        """Whether it must be awaited."""
        return self in {FactoryKind.ASYNC, FactoryKind.ASYNC_GENERATOR}

    @property
    def yields(self) -> bool:
        """Whether it has something to do behind the run."""
        return self in {FactoryKind.GENERATOR, FactoryKind.ASYNC_GENERATOR}


class Step(Struct, frozen=True):
    """One factory to call; what it needs has been made by the steps before it."""

    dependency: Dependency
    kind: FactoryKind
    jobs: tuple[str, ...]  # its parameters that get the running job
    needs: tuple[tuple[str, Dependency], ...]


def dependency_steps(wanted: Iterable[Dependency]) -> tuple[Step, ...]:
    """The steps to all that is wanted, each once, in an order that can be followed.

    `OptionError` if they need each other in a circle, or what they cannot be given.
    """
    steps: dict[Dependency, Step] = {}
    for each in wanted:
        _add(each, steps, path=())
    return tuple(steps.values())


def _add(
    dependency: Dependency, steps: dict[Dependency, Step], path: tuple[Dependency, ...]
) -> None:
    if dependency in steps:
        return
    if dependency in path:
        circle = (*path[path.index(dependency) :], dependency)
        raise OptionError("Depends", _names(circle), "goes round in a circle")
    shape = signature_of(dependency.factory)
    for parameter in shape.given:
        if parameter.required:
            accepted = f"has a parameter {parameter.name} that nobody fills"
            raise OptionError("Depends", dependency.name, accepted)
    for needed in shape.dependencies.values():
        _add(needed, steps, (*path, dependency))
    step = Step(
        dependency, kind_of(dependency.factory), shape.jobs, tuple(shape.dependencies.items())
    )
    if dependency.scope == "app":
        _check_app_wide(step)
    steps[dependency] = step


def _check_app_wide(step: Step) -> None:
    """What lives as long as the worker cannot be made of what lives as long as a job."""
    short = ["Job"] if step.jobs else []
    short += [needed.name for _, needed in step.needs if needed.scope == "job"]
    if short:
        accepted = f'with scope="app" cannot depend on {", ".join(short)}, which is of one job'
        raise OptionError("Depends", step.dependency.name, accepted)


def kind_of(factory: object) -> FactoryKind:
    """How a factory gives its value; a callable object counts by its `__call__`."""
    if isinstance(factory, type):
        return FactoryKind.PLAIN  # what its objects do when they are called is another matter
    kinds = (factory, getattr(factory, "__call__", None))  # noqa: B004 - its kind is asked
    if any(map(inspect.isasyncgenfunction, kinds)):
        return FactoryKind.ASYNC_GENERATOR
    if any(map(inspect.isgeneratorfunction, kinds)):
        return FactoryKind.GENERATOR
    return FactoryKind.ASYNC if any(map(inspect.iscoroutinefunction, kinds)) else FactoryKind.PLAIN


def _names(path: Iterable[Dependency]) -> str:
    return " → ".join(each.name for each in path)
