"""Reads the values that jobs of flows need before they can start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tampu.consumer.batch_sender import BatchSender, SendSteps
from tampu.consumer.intake import Accepted
from tampu.errors import DecodeError
from tampu.server.flows import FlowReader
from tampu.wire.flow import parse_member
from tampu.wire.placeholders import Inputs, placeholders_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tampu.consumer.intake import Delivery, Intake
    from tampu.server.lanes import QueueLanes
    from tampu.wire.keys import QueueKeys

_MOST: Final = 100


class InputReader:
    """Gives jobs of flows the results of the nodes that they depend on, and lets them start."""

    def __init__(self, lanes: QueueLanes, keys: QueueKeys, intake: Intake) -> None:
        self._lanes = lanes
        self._keys = keys
        self._intake = intake
        trouble = lanes.own.server.outage.part(f"values for jobs of queue {keys.name!r}")
        self._sender: BatchSender[Delivery] = BatchSender(
            "values", SendSteps(self._read_all), trouble=trouble, most=_MOST, awaited=True
        )
        self._take: Callable[[Accepted], None] = _drop

    def open(self, take: Callable[[Accepted], None]) -> None:
        """Begin; `take` gets the jobs that have their values."""
        self._take = take
        self._sender.start()

    async def close(self) -> list[Delivery]:
        """End; the jobs that still lack values."""
        await self._sender.stop()
        return self._sender.items

    def put(self, deliveries: list[Delivery]) -> None:
        """Take jobs that lack values."""
        for each in deliveries:
            self._sender.put(each)

    def entry_ids(self) -> Iterator[bytes]:
        """The ids of entries whose jobs lack values."""
        return (each.entry_id for each in self._sender.items)

    async def read(self, deliveries: list[Delivery]) -> Accepted:
        """The jobs with their values."""
        accepted = Accepted([], [], [])
        for each in deliveries:
            try:
                arguments = await self._arguments_of(each)
                accepted.deliveries.append(self._intake.complete(each, arguments))
            except DecodeError as error:
                accepted.refused.append(self._intake.refuse(each, str(error)))
        return accepted

    async def _read_all(self, batch: list[Delivery]) -> None:
        self._take(await self.read(batch))

    async def _arguments_of(self, delivery: Delivery) -> bytes:
        inputs, member = delivery.job.data, parse_member(delivery.job.id)
        if member is None or not isinstance(inputs, Inputs):
            raise DecodeError("arguments", "they need the results of a flow, and it has none")
        lane, keys = await self._lanes.to(member.home or self._keys.name)
        reader = FlowReader(lane, keys, member.flow)
        values = await reader.values_for(placeholders_of(inputs.template))
        return values.fill(inputs.template)


def _drop(_: Accepted) -> None:
    """Before `open`."""
