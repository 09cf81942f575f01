"""Helpers for tests of the promoter."""

from typing import Any

from tampu import Promoter
from tests.contract.workers import KEYS, QUEUE, SOON, Harness
from tests.waiting import wait_until


def make_promoter(harness: Harness, **options: Any) -> Promoter:  # noqa: ANN401 - as they are given
    return Promoter(QUEUE, harness.running.url, **options)


async def until_leader_is(harness: Harness, holder: str) -> None:
    await wait_until(
        lambda: harness.admin.get(KEYS.promoter_lock) == holder.encode(),
        within=SOON,
        sentence=f"{holder} leads",
    )
