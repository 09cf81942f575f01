"""Options of a scheduler, and tasks that a scheduler refuses."""

from datetime import UTC, datetime

import pytest

from tampu.errors import OptionError
from tampu.scheduler import LogObserver, MemoryStore, ScheduledTask, Scheduler, Scope
from tampu.scheduler.guard import Guard, Lease, Refusal, Slot
from tampu.scheduler.stores.coordinated import CoordinatedStore
from tampu.timing import Every
from tests.unit.scheduler.plans import nothing


class OpenGuard(Guard):
    lease_s = renew_every_s = 1.0

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        return Lease(slot, "")

    async def renew(self, lease: Lease) -> bool:
        return bool(lease)

    async def release(self, lease: Lease) -> bool:
        return bool(lease)


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "given"),
        [
            ("store", {}),
            *[("store", given) for given in (None, MemoryStore, "redis://x")],
            *[("guard", given) for given in (5, OpenGuard, MemoryStore())],
            *[("timezone", given) for given in ("Mars/Base", None, 5, UTC)],
            *[("history", given) for given in (-1, None, True, 1.5)],
            *[("threads", given) for given in (0, -1, None, 2.5)],
            *[("keep_ended", given) for given in (None, 1, "yes")],
            *[("grace", given) for given in (-1, "soon", True)],
            *[("clock", given) for given in (None, 5, datetime)],
            *[
                ("observers", given)
                for given in (None, LogObserver(), [5], [LogObserver], iter([LogObserver()]))
            ],
            ("colour", "red"),
        ],
    )
    def test_an_invalid_option_is_refused_by_name(self, option: str, given: object) -> None:
        with pytest.raises(OptionError) as caught:
            Scheduler(**{option: given})  # type: ignore[arg-type]
        assert caught.value.option == option

    def test_a_guard_cannot_be_combined_with_a_coordinated_store(self) -> None:
        with pytest.raises(OptionError) as caught:
            Scheduler(store=CoordinatedStore("redis://127.0.0.1:1"), guard=OpenGuard())
        assert caught.value.option == "guard"

    def test_an_unknown_option_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(OptionError, match="store, guard, timezone, history"):
            Scheduler(zone="UTC")  # type: ignore[call-arg]

    def test_all_options_have_defaults(self) -> None:
        Scheduler()
        Scheduler(grace=0, history=0, guard=None, observers=())


class TestTasks:
    async def test_an_invalid_task_is_refused_by_name(self) -> None:
        async with Scheduler() as scheduler:
            with pytest.raises(OptionError, match=r"^Invalid task 't': expected a ScheduledTask"):
                scheduler.add("t")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("option", "given"), [("resource", "printer"), ("scope", Scope.RESOURCE)]
    )
    async def test_an_option_that_needs_a_guard_is_refused_without_one(
        self, option: str, given: object
    ) -> None:
        task = ScheduledTask("t", Every("1m"), nothing, **{option: given})  # type: ignore[arg-type]
        async with Scheduler() as scheduler:
            with pytest.raises(OptionError, match=f"^Invalid {option} .*needs a scheduler with"):
                scheduler.add(task)
