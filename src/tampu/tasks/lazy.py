"""A task's definition, made when it is first needed."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from tampu.tasks.arguments import ReturnType
from tampu.tasks.execution import TaskDefinition
from tampu.tasks.generators import consume
from tampu.tasks.settings import TaskSettings
from tampu.util.options import yields


class LazyDefinition:
    """A task's definition, made on first use: annotations may name what is defined later."""

    def __init__(self, name: str, function: Callable[..., Any], settings: TaskSettings) -> None:
        self._name, self._function, self._settings = name, function, settings
        self._in_batches, self._streams = settings.batch is not None, yields(function)

    @cached_property
    def definition(self) -> TaskDefinition:
        """Its signature, arguments and dependencies; `OptionError` if it can never run."""
        made = TaskDefinition.of(self._name, self._function, in_batches=self._in_batches)
        if not self._streams:
            return made
        settings = self._settings
        return replace(
            made, function=consume(self._function, settings.collect, settings.output_rules)
        )

    @cached_property
    def defaults(self) -> dict[str, object]:
        """The arguments that a call may leave out."""
        parameters = self.definition.signature.parameters
        return {each.name: each.default for each in parameters if not each.required}

    @cached_property
    def return_type(self) -> ReturnType:
        """What its results are converted to."""
        # With batches, jobs may get results of their own; of a generator, `collect` makes them.
        is_unknown = self._in_batches or self._streams
        return ReturnType(Any if is_unknown else self.definition.signature.returns)

    @cached_property
    def yield_type(self) -> ReturnType:
        """What its chunks are converted to."""
        return ReturnType(self.definition.signature.yields)
