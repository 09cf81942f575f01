"""Dependencies: which factories a function needs, and in which order to call them."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import OptionError
from tampu.tasks.signature import Dependency, signature_of
from tampu.tasks.web_marks import WebOnly

Overrides: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]
"""Factories, each with the one to call instead."""
NO_OVERRIDES: Final[Overrides] = MappingProxyType({})


class FactoryKind(Enum):
    """How a factory creates its value."""

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
        """Whether it has code to run after the job."""
        return self in {FactoryKind.GENERATOR, FactoryKind.ASYNC_GENERATOR}


class Step(Struct, frozen=True):
    """One factory to call; earlier steps have created what it needs."""

    dependency: Dependency
    kind: FactoryKind
    job_parameters: tuple[str, ...]
    needs: tuple[tuple[str, Dependency], ...]


def override_all(
    dependencies: Mapping[str, Dependency], overrides: Overrides
) -> dict[str, Dependency]:
    """Dependencies by parameter, with the factories that are called instead."""
    return {
        name: replace(each, factory=overrides.get(each.factory, each.factory))
        for name, each in dependencies.items()
    }


def dependency_steps(
    dependencies: Iterable[Dependency], overrides: Overrides = NO_OVERRIDES
) -> tuple[Step, ...]:
    """The steps that create all dependencies, each once, in an order that works.

    `overrides` apply to what these depend on. Raises `OptionError` if they depend on each other in
    a circle, or if a factory has a parameter that nothing fills.
    """
    steps: dict[Dependency, Step] = {}
    for each in dependencies:
        _add_steps(each, steps, overrides, path=())
    return tuple(steps.values())


def _add_steps(
    dependency: Dependency,
    steps: dict[Dependency, Step],
    overrides: Overrides,
    *,
    path: tuple[Dependency, ...],
) -> None:
    if dependency in steps:
        return
    factories = [each.factory for each in path]
    if dependency.factory in factories:
        circle = (*path[factories.index(dependency.factory) :], dependency)
        names = " → ".join(each.name for each in circle)
        raise OptionError("Depends", names, "the dependencies form a circle")
    signature = signature_of(dependency.factory)
    for parameter in signature.parameters:
        if parameter.required:
            problem = (
                f"parameter {parameter.name} needs a default, a Depends(...) or type Job: "
                "a job has no web request to take it from"
            )
            raise OptionError("Depends", dependency.name, problem)
    needs = override_all(signature.dependencies, overrides)
    for needed in needs.values():
        _add_steps(needed, steps, overrides, path=(*path, dependency))
    step = Step(
        dependency,
        factory_kind(dependency.factory),
        signature.job_parameters,
        tuple(needs.items()),
    )
    if dependency.scope == "app":
        _check_app_scope(step)
    steps[dependency] = step


def _check_app_scope(step: Step) -> None:
    """A value that lives as long as the worker cannot be made from a value of one job."""
    per_job = ["Job"] if step.job_parameters else []
    per_job += [needed.name for _, needed in step.needs if needed.scope == "job"]
    if per_job:
        problem = f'scope="app" cannot depend on {", ".join(per_job)}, which exists once per job'
        raise OptionError("Depends", step.dependency.name, problem)


def refuse_web_dependencies(
    function: Callable[..., object], seen: frozenset[object] = frozenset()
) -> None:
    """Refuse a function if it or a factory wants what only a web request has.

    Annotations that cannot be resolved yet are left to the first use of the task.
    """
    try:
        signature = signature_of(function)
    except WebOnly:
        raise
    except OptionError:
        return
    for each in signature.dependencies.values():
        if each.factory not in seen:
            refuse_web_dependencies(each.factory, seen | {each.factory})


def factory_kind(factory: object) -> FactoryKind:
    """How a factory creates its value; a callable object counts by its `__call__`."""
    if isinstance(factory, type):
        return FactoryKind.PLAIN  # calling the class creates the value, whatever its objects do
    kinds = (factory, getattr(factory, "__call__", None))  # noqa: B004 - its kind is checked
    if any(map(inspect.isasyncgenfunction, kinds)):
        return FactoryKind.ASYNC_GENERATOR
    if any(map(inspect.isgeneratorfunction, kinds)):
        return FactoryKind.GENERATOR
    decorated = inspect.unwrap(factory) if callable(factory) else factory
    is_async = any(map(inspect.iscoroutinefunction, (*kinds, decorated)))
    return FactoryKind.ASYNC if is_async else FactoryKind.PLAIN
