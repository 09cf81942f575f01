"""What tests of promoting share."""

from typing import Any

from tampu import Promoter
from tests.contract.workers import KEYS, QUEUE, SOON, Crew
from tests.waiting import wait_until


def standing_alone(crew: Crew, **options: Any) -> Promoter:  # noqa: ANN401 - as they are given
    return Promoter(QUEUE, crew.running.url, **options)


async def until_led_by(crew: Crew, holder: str) -> None:
    await wait_until(
        lambda: crew.admin.get(KEYS.promoter_lock) == holder.encode(),
        within=SOON,
        sentence=f"{holder} leads",
    )
