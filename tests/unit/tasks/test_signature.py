"""Signatures: which parameters the caller fills, and which the worker injects."""

from typing import Any

import pytest

from tampu.errors import OptionError
from tampu.job import Job
from tampu.tasks.signature import INJECTED, Depends, check_parameters, signature_of


def test_a_job_is_found_by_its_annotation_however_it_is_written() -> None:
    def task(
        a: Job,
        b: Job[int],
        c: "Job[Any] | None" = None,
        d: Job[Any] = INJECTED,
    ) -> None: ...

    assert signature_of(task).job_parameters == ("a", "b", "c", "d")


def test_injected_needs_a_job_or_a_dependency() -> None:
    def task(other: str = INJECTED) -> None: ...

    with pytest.raises(OptionError, match="parameter other must be annotated with Job or Depends"):
        signature_of(task)


def test_an_annotation_that_is_missing_at_run_time_is_named() -> None:
    def task(other: "OnlyForCheckers") -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(
        OptionError, match=r"OnlyForCheckers.*not defined at run time in the module"
    ):
        signature_of(task)


@pytest.mark.parametrize("annotation", ["how many", "pytest.nothing", "5 | 3.0"])
def test_an_annotation_that_is_not_a_type_is_refused(annotation: str) -> None:
    def task(other: Any) -> None: ...  # noqa: ANN401 - set below

    task.__annotations__["other"] = annotation
    with pytest.raises(OptionError, match=r"task.*an annotation cannot be resolved: "):
        signature_of(task)


def test_parameters_that_cannot_be_passed_by_name_are_refused() -> None:
    def many(*args: int) -> None: ...
    def named(**kwargs: int) -> None: ...
    def unnamed(a: int, /) -> None: ...

    for function in (many, named, unnamed):
        with pytest.raises(OptionError, match="arguments are sent by name"):
            check_parameters(function)


def test_parameters_whose_default_is_injected_are_found() -> None:
    def task(to: str, db: str = Depends(dict), job: Job[Any] = INJECTED, n: int = 1) -> None: ...

    assert check_parameters(task) == {"db", "job"}
