"""Which factories are called, in which order, and what can never be."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pytest

from tampu.errors import OptionError
from tampu.job import Job
from tampu.tasks.depends import FactoryKind, dependency_steps, kind_of
from tampu.tasks.signature import INJECTED, Dependency, Depends, check_parameters, signature_of


def settings() -> str:
    return "settings"


def pool(given: Annotated[str, Depends(settings)]) -> str:
    return given


def session(given: str = Depends(pool), job: Job[Any] = INJECTED) -> str:
    return given


def user(a: str = Depends(session), b: str = Depends(settings)) -> str:
    return a + b


async def made_async() -> None: ...


def generated() -> Iterator[int]:
    yield 1


async def generated_async() -> AsyncIterator[int]:
    yield 1


class Made:
    def __init__(self, given: str = Depends(settings)) -> None: ...

    async def __call__(self) -> None: ...


def left(other: str = Depends(lambda: None)) -> None: ...


def right(other: str = Depends(left)) -> None: ...


class TestOrder:
    def test_what_is_needed_comes_first_and_each_once(self) -> None:
        steps = dependency_steps([Dependency(user), Dependency(pool)])
        assert [step.dependency.factory for step in steps] == [settings, pool, session, user]

    def test_a_step_knows_its_parameters(self) -> None:
        *_, step = dependency_steps([Dependency(session)])
        assert (step.jobs, step.needs) == (("job",), (("given", Dependency(pool)),))

    def test_a_class_is_a_factory_whose_parameters_are_filled(self) -> None:
        steps = dependency_steps([Dependency(Made)])
        assert [step.dependency.factory for step in steps] == [settings, Made]

    @pytest.mark.parametrize(
        ("factory", "kind"),
        [
            (settings, FactoryKind.PLAIN),
            (made_async, FactoryKind.ASYNC),
            (generated, FactoryKind.GENERATOR),
            (generated_async, FactoryKind.ASYNC_GENERATOR),
            (partial(generated_async), FactoryKind.ASYNC_GENERATOR),
            (Made, FactoryKind.PLAIN),
            (Made(), FactoryKind.ASYNC),
            (dict, FactoryKind.PLAIN),
        ],
    )
    def test_the_kind_of_a_factory(self, factory: Callable[..., object], kind: FactoryKind) -> None:
        assert kind_of(factory) is kind


class TestRefusals:
    def test_a_circle_is_refused_with_its_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(left, "__defaults__", (Depends(right),))
        with pytest.raises(OptionError, match=r"left → right → left.*goes round in a circle"):
            dependency_steps([Dependency(left)])

    def test_a_parameter_that_nobody_fills_is_refused(self) -> None:
        def factory(what: str) -> None: ...

        with pytest.raises(OptionError, match=r"factory.*has a parameter what that nobody fills"):
            dependency_steps([Dependency(factory)])

    def test_what_is_app_wide_cannot_depend_on_a_job(self) -> None:
        def of_job(job: Job[Any]) -> None: ...

        def deeper(given: None = Depends(of_job)) -> None: ...

        for factory, why in ((of_job, "Job"), (deeper, "of_job")):
            with pytest.raises(OptionError, match=f'scope="app" cannot depend on .*{why}'):
                dependency_steps([Dependency(factory, "app")])

    def test_what_makes_nothing_or_lives_nowhere_is_refused(self) -> None:
        with pytest.raises(OptionError, match="factory"):
            Depends(5)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="scope"):
            Depends(settings, scope="request")  # type: ignore[arg-type]

    def test_a_factory_is_what_its_value_is_looked_up_by(self) -> None:
        @dataclass
        class Factory:
            def __call__(self) -> None: ...

        with pytest.raises(OptionError, match="must be hashable"):
            Depends(Factory())


class TestShape:
    def test_a_job_is_known_by_its_annotation_in_every_spelling(self) -> None:
        def task(
            a: Job,  # type: ignore[type-arg] # a user's
            b: Job[int],
            c: "Job[Any] | None" = None,
            d: Job[Any] = INJECTED,
        ) -> None: ...

        assert signature_of(task).jobs == ("a", "b", "c", "d")

    def test_injected_stands_for_a_job_only(self) -> None:
        def task(other: str = INJECTED) -> None: ...

        with pytest.raises(OptionError, match="cannot fill other, which is no Job"):
            signature_of(task)

    def test_an_annotation_that_is_not_there_at_run_time_is_named(self) -> None:
        def task(other: "OnlyForCheckers") -> None: ...  # type: ignore[name-defined] # noqa: F821

        with pytest.raises(OptionError, match=r"OnlyForCheckers.*is not defined in the module"):
            signature_of(task)

    @pytest.mark.parametrize("annotation", ["how many", "pytest.nothing", "5 | 3.0"])
    def test_an_annotation_that_is_no_type_is_refused(self, annotation: str) -> None:
        def task(other: Any) -> None: ...  # noqa: ANN401 - set below

        task.__annotations__["other"] = annotation
        with pytest.raises(OptionError, match=r"task.*has an annotation that cannot be read: "):
            signature_of(task)

    def test_parameters_without_a_name_of_their_own_are_refused(self) -> None:
        def many(*args: int) -> None: ...
        def named(**kwargs: int) -> None: ...
        def unnamed(a: int, /) -> None: ...

        for function in (many, named, unnamed):
            with pytest.raises(OptionError, match="arguments travel by their names"):
                check_parameters(function)
