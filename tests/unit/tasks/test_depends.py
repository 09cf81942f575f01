"""Dependencies: which factories are called, and in which order."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pytest

from tampu.errors import OptionError
from tampu.job import Job
from tampu.tasks.depends import FactoryKind, dependency_steps, factory_kind
from tampu.tasks.signature import INJECTED, Dependency, Depends


def settings() -> str:
    return "settings"


def pool(given: Annotated[str, Depends(settings)]) -> str:
    return given


def session(given: str = Depends(pool), job: Job[Any] = INJECTED) -> str:
    return given


def user(a: str = Depends(session), b: str = Depends(settings)) -> str:
    return a + b


async def create_async() -> None: ...


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> AsyncIterator[int]:
    yield 1


class Created:
    def __init__(self, given: str = Depends(settings)) -> None: ...

    async def __call__(self) -> None: ...


def left(other: str = Depends(lambda: None)) -> None: ...


def right(other: str = Depends(left)) -> None: ...


class TestOrder:
    def test_a_factory_comes_after_those_it_needs_and_only_once(self) -> None:
        steps = dependency_steps([Dependency(user), Dependency(pool)])
        assert [step.dependency.factory for step in steps] == [settings, pool, session, user]

    def test_a_step_knows_its_parameters(self) -> None:
        *_, step = dependency_steps([Dependency(session)])
        assert (step.job_parameters, step.needs) == (("job",), (("given", Dependency(pool)),))

    def test_a_class_is_a_factory_whose_parameters_are_injected(self) -> None:
        steps = dependency_steps([Dependency(Created)])
        assert [step.dependency.factory for step in steps] == [settings, Created]

    @pytest.mark.parametrize(
        ("factory", "kind"),
        [
            (settings, FactoryKind.PLAIN),
            (create_async, FactoryKind.ASYNC),
            (generate, FactoryKind.GENERATOR),
            (generate_async, FactoryKind.ASYNC_GENERATOR),
            (partial(generate_async), FactoryKind.ASYNC_GENERATOR),
            (Created, FactoryKind.PLAIN),
            (Created(), FactoryKind.ASYNC),
            (dict, FactoryKind.PLAIN),
        ],
    )
    def test_the_kind_of_a_factory(self, factory: Callable[..., object], kind: FactoryKind) -> None:
        assert factory_kind(factory) is kind


class TestRefusals:
    def test_a_circle_is_refused_with_its_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(left, "__defaults__", (Depends(right),))
        with pytest.raises(
            OptionError, match=r"left → right → left.: the dependencies form a circle"
        ):
            dependency_steps([Dependency(left)])

    def test_a_parameter_that_nothing_fills_is_refused(self) -> None:
        def factory(what: str) -> None: ...

        with pytest.raises(
            OptionError, match=r"factory.: parameter what needs a default.*no web request"
        ):
            dependency_steps([Dependency(factory)])

    def test_scope_app_cannot_depend_on_a_job(self) -> None:
        def of_job(job: Job[Any]) -> None: ...

        def deeper(given: None = Depends(of_job)) -> None: ...

        for factory, why in ((of_job, "Job"), (deeper, "of_job")):
            with pytest.raises(OptionError, match=f'scope="app" cannot depend on .*{why}'):
                dependency_steps([Dependency(factory, "app")])

    def test_an_invalid_factory_or_scope_is_refused(self) -> None:
        with pytest.raises(OptionError, match="factory"):
            Depends(5)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="scope"):
            Depends(settings, scope="request")  # type: ignore[arg-type]

    def test_a_factory_must_be_hashable(self) -> None:
        @dataclass
        class Factory:
            def __call__(self) -> None: ...

        with pytest.raises(OptionError, match="must be hashable"):
            Depends(Factory())
