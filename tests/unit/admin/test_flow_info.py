"""What is known about a flow, from the fields of its state."""

from collections.abc import Mapping

from tampu.admin.flow_info import EdgeKind, NodeState, RunState, read_flow
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.result import encode_failure

FLOW: Mapping[str, bytes] = {
    "s": b"running",
    "live": b"1",
    "held": b"2",
    "bad": b"0",
    "name": b"index",
    "nodes": b"3",
    "at": b"1794725043642",
    "res": b"2",
    "k0": b"s",
    "n0": b"fetch",
    "z0": b"2",
    "u0": b"0",
    "x0": b"0",
    "c0": b"se",
    "o0": b"1s,2a",
    "k1": b"m",
    "n1": b"count",
    "z1": b"1",
    "u1": b"7",
    "x1": b"2",
    "p1": b"10",
    "o1": b"2e",
    "k2": b"s",
    "n2": b"tell",
    "u2": b"1",
    "q2": b"other",
    "w2": b"1",
}


def test_a_flow_that_runs() -> None:
    info = read_flow("F", "home", FLOW)
    assert (info.id, info.name, info.queue, info.state) == ("F", "index", "home", RunState.RUNNING)
    assert info.started_at.year == 2026
    assert info.ended_at is None
    assert info.failure is None
    assert info.result_node == 2
    assert info.is_growing
    assert (info.jobs, info.done, info.failed) == (12, 4, 2)
    assert repr(info) == "<FlowInfo F 'index' running>"


def test_its_nodes() -> None:
    fetch, count, tell = read_flow("F", "home", FLOW).nodes
    assert (fetch.state, fetch.queue, fetch.jobs, fetch.done) == (NodeState.DONE, "home", 1, 1)
    assert (count.state, count.is_map, count.is_growing) == (NodeState.RUNNING, True, True)
    assert (count.jobs, count.done, count.failed, count.running) == (10, 3, 2, 5)
    assert (tell.state, tell.queue, tell.is_over) == (NodeState.WAITING, "other", False)


def test_what_a_node_waits_for() -> None:
    fetch, count, tell = read_flow("F", "home", FLOW).nodes
    assert (fetch.waits_for, fetch.missing) == ((), ())
    assert [(each.node, each.kind) for each in count.waits_for] == [(0, EdgeKind.SUCCESS)]
    assert count.missing == ()
    kinds = [(0, EdgeKind.ORDER), (1, EdgeKind.END)]
    assert [(each.node, each.kind) for each in tell.waits_for] == kinds
    assert tell.missing == (1,)


def test_a_success_is_missing_after_a_failure() -> None:
    failed = {**FLOW, "c0": b"e", "u0": b"1", "x0": b"1", "z1": b"", "p1": b"0", "u1": b"0"}
    fetch, count, tell = read_flow("F", "home", failed).nodes
    assert (fetch.state, fetch.failed, fetch.is_over) == (NodeState.FAILED, 1, True)
    assert count.missing == (0,)
    assert tell.missing == (1,), "an order needs no success"


def test_a_map_that_tolerates_failures_is_done() -> None:
    done = {**FLOW, "z1": b"2", "u1": b"2", "c1": b"se"}
    count = read_flow("F", "home", done).nodes[1]
    assert (count.state, count.failed, count.is_growing) == (NodeState.DONE, 2, False)


def test_a_flow_that_is_over() -> None:
    why = encode_failure(BuryReason.RETRIES_EXHAUSTED, Failure("ValueError", "no", "trace"))
    over = {**FLOW, "s": b"failed", "end": b"1794725043999", "why": why}
    info = read_flow("F", "home", over)
    assert info.state is RunState.FAILED
    assert info.ended_at is not None
    assert info.ended_at.microsecond == 999_000
    assert info.failure == Failure("ValueError", "no", "trace")


def test_a_flow_that_goes_on_has_no_end() -> None:
    again = {**FLOW, "end": b"1794725043999"}
    assert read_flow("F", "home", again).ended_at is None


def test_a_halted_flow_is_one_that_runs_and_waits_for_a_retry() -> None:
    assert read_flow("F", "home", {**FLOW, "halt": b"1"}).state is RunState.HALTED
    failed = {**FLOW, "halt": b"1", "s": b"failed"}
    assert read_flow("F", "home", failed).state is RunState.FAILED
