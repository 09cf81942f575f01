"""Flows that cannot be: each is an error at the call, and nothing is written."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from tampu import (
    App,
    ArgumentError,
    Backoff,
    Closed,
    Debounce,
    EncodeError,
    Flow,
    Limit,
    OptionError,
    TampuError,
    Unique,
    WrongContext,
    chain,
)
from tests.contract.flows import OTHER, FlowApp
from tests.servers import RunningServer


@pytest.fixture
def flows(running: RunningServer) -> FlowApp:
    return FlowApp(running)


@pytest.fixture
async def flow(flows: FlowApp, admin: redis.Redis) -> AsyncIterator[Flow]:
    """A flow; nothing may be written in the end."""
    async with flows.app:
        yield flows.app.flow("a flow")
    assert list(admin.scan_iter("*flow*")) == []
    assert list(admin.scan_iter("*stream*")) == []


def fails(error: type[TampuError], match: str, act: Callable[[], object]) -> None:
    with pytest.raises(error, match=match):
        act()


# --- edges --------------------------------------------------------------------------------------


async def test_cycles_are_refused(flows: FlowApp, flow: Flow) -> None:
    first = flow.add(flows.double, 1)
    second = flow.add(flows.double, first)
    third = flow.add(flows.note, "x").after(second)
    fails(OptionError, "waits for", lambda: first.after(third))
    fails(OptionError, "waits for", lambda: first.needs(second))
    fails(OptionError, "waits for", lambda: first.after(first))


async def test_nodes_of_another_flow_are_refused(flows: FlowApp, flow: Flow) -> None:
    other = flows.app.flow("other")
    node, own = other.add(flows.double, 1), flow.add(flows.double, 1)
    many = other.map(flows.double, [1])
    for act in (
        lambda: flow.add(flows.double, node),
        lambda: flow.add(flows.add_up, numbers=[node.value]),
        lambda: flow.add(flows.add_up, numbers=[*many.value]),
        lambda: flow.add(flows.one_outcome, node.outcome),
        lambda: flow.map(flows.double, many),
        lambda: own.after(node),
        lambda: own.needs(many),
    ):
        fails(OptionError, "another flow", act)
    with pytest.raises(OptionError, match="another flow"):
        await flow.start(result=node)
    with pytest.raises(OptionError, match=r"flow.add\(\)"):
        await flow.start(result=0)  # type: ignore[call-overload]
    fails(OptionError, r"flow.add\(\)", lambda: own.after(0))  # type: ignore[arg-type]


async def test_the_edges_of_a_map_are_those_of_many_jobs(flows: FlowApp, flow: Flow) -> None:
    many = flow.map(flows.double, [1, 2])
    fails(OptionError, "outcomes", lambda: many.outcome)
    for share in (-0.1, 1.1, True, "1", None, float("nan")):
        fails(OptionError, "share", lambda share=share: many.tolerate(share))  # type: ignore[misc]


# --- arguments ----------------------------------------------------------------------------------


async def test_arguments_that_do_not_fit_are_refused(flows: FlowApp, flow: Flow) -> None:
    add: Any = flow.add
    fails(ArgumentError, "number", lambda: add(flows.double, "x"))
    fails(ArgumentError, "unknown", lambda: add(flows.double, 1, colour=2))
    fails(ArgumentError, "number", lambda: add(flows.double))
    fails(ArgumentError, "number", lambda: flow.map(flows.double, [1, "x"]))  # type: ignore[call-overload]
    fails(ArgumentError, "extra", lambda: add(flows.add_up, [1], extra="x"))
    assert repr(flow) == "<Flow 'a flow' with 0 nodes>"


async def test_values_that_are_too_large_are_refused(flows: FlowApp, flow: Flow) -> None:
    huge = "x" * 70_000_000
    fails(EncodeError, "bytes", lambda: flow.add(flows.note, huge))
    fails(EncodeError, "bytes", lambda: flow.map(flows.note, [huge]))


async def test_options_that_jobs_of_flows_cannot_have_are_refused(
    flows: FlowApp, flow: Flow
) -> None:
    given: list[tuple[str, dict[str, Any]]] = [
        ("delay", {"delay": "1m"}),
        ("delay", {"at": datetime.now(UTC) + timedelta(hours=1)}),
        ("job_id", {"job_id": "mine"}),
        ("unique", {"unique": Unique(key="k")}),
        ("expires", {"expires": "1m"}),
        ("debounce", {"debounce": Debounce("1m")}),
        ("debounce", {"keep": "latest"}),
        ("debounce", {"max_waiting": 1}),
    ]
    for option, options in given:
        task = flows.in_line.options(**options)
        fails(OptionError, f"Invalid {option}", lambda task=task: flow.add(task, 1))  # type: ignore[misc]
        fails(OptionError, f"Invalid {option}", lambda task=task: flow.map(task, [1]))  # type: ignore[misc]
        with pytest.raises(OptionError, match=f"Invalid {option}"):
            await chain(flows.double.call(1), task).enqueue()
        with pytest.raises(OptionError, match=f"Invalid {option}"):
            await chain(task.call(1), flows.double).enqueue()


async def test_limits_that_nobody_has_declared_are_refused(flows: FlowApp, flow: Flow) -> None:
    task = flows.double.options(limits=[Limit("nobody")])
    fails(OptionError, "no limit of this name", lambda: flow.add(task, 1))


# --- starting -----------------------------------------------------------------------------------


async def test_a_flow_without_nodes_does_not_start(flow: Flow) -> None:
    with pytest.raises(OptionError, match="no nodes"):
        await flow.start()


async def test_a_flow_starts_once_and_does_not_change_then(
    flows: FlowApp, admin: redis.Redis
) -> None:
    flow = flows.app.flow("a flow")
    async with flows.app:
        first, second = flow.add(flows.double, 1), flow.add(flows.double, 2)
        await flow.start()
        keys = set(admin.scan_iter("*"))
        with pytest.raises(WrongContext, match="started"):
            await flow.start()
        for act in (
            lambda: flow.add(flows.double, 1),
            lambda: flow.map(flows.double, [1]),
            lambda: flow.add_call(flows.double.call(1)),
            lambda: first.after(second),
            lambda: first.needs(second),
        ):
            fails(WrongContext, "started", act)
        many = flows.app.flow("b").map(flows.double, [1])
        assert many.tolerate(0.5) is many
        assert set(admin.scan_iter("*")) == keys


async def test_options_of_a_flow_are_checked(flows: FlowApp, flow: Flow) -> None:
    make: Any = flows.app.flow
    fails(OptionError, "result_ttl", lambda: make(result_ttl=0))
    fails(OptionError, "fail_fast", lambda: make(fail_fast="yes"))
    fails(OptionError, "queue", lambda: make(queue="a b\n"))
    fails(OptionError, "name", lambda: make("x" * 300))
    fails(OptionError, "id", lambda: flows.app.flow_run(" "))
    with pytest.raises(OptionError, match="nodes"):
        flows.app.flow_run("x").completed(0)  # type: ignore[arg-type]


# --- chains and batches -------------------------------------------------------------------------


async def test_chains_that_cannot_be(flows: FlowApp, flow: Flow) -> None:
    make: Any = chain
    fails(OptionError, "begins with a call", lambda: make(flows.double, flows.double))
    there: Any = flows.size_there
    fails(OptionError, OTHER, lambda: chain(flows.double.call(1), there))
    fails(ArgumentError, "unknown", lambda: flows.double.call(1).then(flows.double, colour=1))  # type: ignore[call-overload]
    long = flows.double.call(1).then(flows.double)
    for _ in range(98):
        long = long.then(flows.double)
    fails(OptionError, "at most 100 steps", lambda: long.then(flows.double))


async def test_batches_that_cannot_be(flows: FlowApp, app_of_batches: App) -> None:
    batch = app_of_batches.batch()
    with pytest.raises(WrongContext, match="has not begun"):
        repr(batch.run)
    async with batch:
        with pytest.raises(OptionError, match=OTHER):
            await batch.add(flows.size_there, "x")
        with pytest.raises(ArgumentError):
            await batch.add(flows.double, "x")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="delay"):
            await batch.add(flows.double.options(delay=5), 1)
    with pytest.raises(Closed):
        await batch.add(flows.double, 1)


@pytest.fixture
async def app_of_batches(flows: FlowApp) -> AsyncIterator[App]:
    async with flows.app:
        yield flows.app


def test_backoffs_and_attempts_are_those_that_a_job_of_a_flow_may_have(flows: FlowApp) -> None:
    task = flows.double.options(attempts=3, backoff=Backoff.fixed(1), timeout=5, headers={"a": "b"})
    flows.app.flow().add(task, 1)


async def test_nobody_can_choose_an_id_that_looks_like_one_of_a_flow(
    flows: FlowApp, flow: Flow
) -> None:
    for job_id in ("0" * 26 + "~1", "0" * 26 + "~1.2!3@home", "0" * 26 + "~1/3"):
        with pytest.raises(OptionError, match="of flows"):
            await flows.home.add("n", job_id=job_id)
    assert repr(flow)


async def test_a_step_of_a_chain_waits_for_no_node(flows: FlowApp, flow: Flow) -> None:
    node = flow.add(flows.double, 1)
    first = flows.double.call(1)
    fails(OptionError, "use a flow", lambda: first.then(flows.pair, node))  # type: ignore[call-overload]
