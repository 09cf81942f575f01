"""Options: checks that all groups share, and pairs that must not drift apart."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, get_type_hints, is_typeddict

import msgspec
import pytest

import tampu
from tampu.errors import OptionError
from tampu.job import JobOptions, NewJob
from tampu.producer.options import QueueSettings
from tampu.util.options import at_least, check_choice, check_flag, check_type, parse_options


def option_groups() -> Iterator[type]:
    """Every TypedDict of the library whose name ends in Options."""
    for module in pkgutil.walk_packages(tampu.__path__, "tampu."):
        if module.name.startswith(("tampu.cli", "tampu.demo")):
            continue  # programs, which take their options from the command line
        if module.name in {"tampu.django.admin", "tampu.django.models", "tampu.django.worker"}:
            continue  # modules that need a Django project
        for name, each in vars(importlib.import_module(module.name)).items():
            if name.endswith("Options") and is_typeddict(each):
                yield each


GROUPS = sorted(set(option_groups()), key=lambda group: group.__name__)


def settings_of(group: type) -> type:
    """The other half: `QueueSettings` for `QueueOptions`, in the same module."""
    if group is JobOptions:
        return NewJob
    module = importlib.import_module(group.__module__)
    found: type = getattr(module, group.__name__.removesuffix("Options") + "Settings")
    return found


def defaults_of(settings: type) -> dict[str, object]:
    if issubclass(settings, msgspec.Struct):
        return {
            field.name: field.default
            for field in msgspec.structs.fields(settings)
            if not field.required
        }
    assert dataclasses.is_dataclass(settings)
    missing = dataclasses.MISSING
    return {
        field.name: field.default
        for field in dataclasses.fields(settings)
        if field.default is not missing or field.default_factory is not missing
    }


class TestPairs:
    def test_all_pairs_are_found(self) -> None:
        names = {group.__name__ for group in GROUPS}
        assert names >= {"JobOptions", "QueueOptions", "ScheduleOptions", "SchedulerOptions"}
        assert names >= {"GuardOptions", "LeaseOptions", "TaskOptions", "WorkerOptions"}

    @pytest.mark.parametrize("group", GROUPS)
    def test_both_halves_have_the_same_names_and_types(self, group: type) -> None:
        settings = get_type_hints(settings_of(group))
        if group is JobOptions:
            del settings["name"], settings["data"]
        assert get_type_hints(group) == settings

    @pytest.mark.parametrize("group", GROUPS)
    def test_every_option_has_a_default(self, group: type) -> None:
        assert get_type_hints(group).keys() <= defaults_of(settings_of(group)).keys()

    @pytest.mark.parametrize("group", GROUPS)
    def test_settings_are_frozen(self, group: type) -> None:
        settings: Any = settings_of(group)
        made = settings("a") if settings is NewJob else settings()
        with pytest.raises(AttributeError):
            setattr(made, next(iter(get_type_hints(group))), None)


class TestParsing:
    def test_an_unknown_option_is_named_with_the_known_ones(self) -> None:
        with pytest.raises(OptionError) as refusal:
            parse_options(QueueSettings, "Queue", {"retries": 5})
        assert str(refusal.value).startswith(
            "Invalid retries 5: unknown option; Queue accepts max_len, on_full, "
        )

    def test_a_misspelled_option_comes_with_a_hint(self) -> None:
        with pytest.raises(OptionError, match=r"unknown option \(did you mean max_len\?\); Queue"):
            parse_options(QueueSettings, "Queue", {"maxlen": 5})

    def test_options_become_settings(self) -> None:
        assert parse_options(QueueSettings, "Queue", {"max_len": 5}) == QueueSettings(max_len=5)


class TestChecks:
    @pytest.mark.parametrize("given", [0, -1, True, 1.0, "1", None])
    def test_only_whole_numbers_pass(self, given: object) -> None:
        with pytest.raises(OptionError) as refusal:
            at_least("count", given, 1)
        problem = "must be a whole number of at least 1"
        assert str(refusal.value) == f"Invalid count {given!r}: {problem}."

    def test_a_number_may_have_an_upper_bound(self) -> None:
        at_least("count", 5, 1, most=5)
        with pytest.raises(OptionError, match="must be a whole number from 1 to 5"):
            at_least("count", 6, 1, most=5)

    def test_a_flag_is_true_or_false(self) -> None:
        check_flag("events", given=False)
        with pytest.raises(OptionError, match="Invalid events 1: expected True or False"):
            check_flag("events", given=1)

    def test_a_value_has_one_of_the_types(self) -> None:
        check_type("rule", None, int | None, accepted="a number")
        with pytest.raises(OptionError, match="Invalid rule 'a': expected a number"):
            check_type("rule", "a", int, accepted="a number")

    @pytest.mark.parametrize("given", ["c", None, ["a"], 5])
    def test_a_choice_is_one_of_the_texts(self, given: object) -> None:
        check_choice("on_full", "a", ("a", "b"))
        with pytest.raises(OptionError, match="expected one of a, b"):
            check_choice("on_full", given, ("a", "b"))
