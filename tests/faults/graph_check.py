"""Compares a flow that is at rest with its model: its state, its jobs, their values, its keys."""

from typing import Any

from tampu.admin.flow_info import FlowInfo, NodeState, RunState
from tampu.flows.run import FlowRun
from tampu.server.flows import FlowReader
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tampu.wire.placeholders import split_value
from tests.faults.graphs import Ended, Model


class RestCheck:
    """A look at a flow of which nothing waits or runs."""

    def __init__(self, model: Model, run: FlowRun[Any], lane: Lane, keys: QueueKeys) -> None:
        self.model, self.run, self.lane, self.keys = model, run, lane, keys
        self._is_cancelled = False

    async def check(self, letters: dict[str, list[str]], *, is_cancelled: bool) -> None:
        """Compare the flow with its model; nothing of it waits or runs."""
        info = await self.run.info()
        assert info is not None
        live, held, halted = await self._reader().fields(["live", "held", "halt"])
        assert live == b"0", f"{live!r} jobs are still counted"
        assert halted != b"2", "it has not resumed"
        is_halted = halted == b"1"
        released = [each for each in info.nodes if each.state is not NodeState.WAITING]
        assert int(held or 0) == len(info.nodes) - len(released)
        self._is_cancelled = is_cancelled
        self._check_state(info, is_halted=is_halted)
        self._check_jobs(info, is_halted=is_halted)
        await self._check_values(info)
        await self._check_keys(info, sum(map(len, letters.values())))

    def _check_state(self, info: FlowInfo, *, is_halted: bool) -> None:
        model = self.model
        if self._is_cancelled:
            assert info.state is RunState.CANCELLED, info
            return
        is_bad = any(each.is_bad for each in model.nodes)
        if is_halted:
            assert is_bad, "it is halted, and nothing has failed"
        else:
            for own, other in zip(info.nodes, model.nodes, strict=True):
                assert (own.state is not NodeState.WAITING) is model.may_start(other), own
                assert other.is_whole or not model.may_start(other), f"{own} does not grow"
        is_done = not is_bad and all(map(model.may_start, model.nodes))
        assert info.state is (RunState.DONE if is_done else RunState.FAILED), info

    def _check_jobs(self, info: FlowInfo, *, is_halted: bool) -> None:
        for node, number, job in self.model.jobs():
            what = f"job {number} of node {node.number}: {job}"
            if self._is_cancelled or job.is_copied:  # a copy that is taken out does not start
                assert job.starts <= job.allowed, what
            elif job.is_parked:
                assert is_halted, what
                assert job.starts == job.allowed - 1, what
            elif self.model.may_start(node) and info.nodes[node.number].jobs:
                may_wait = is_halted and info.nodes[node.number].state is NodeState.WAITING
                assert job.starts == (0 if may_wait else job.allowed), what
        for own, other in zip(info.nodes, self.model.nodes, strict=True):
            ended = [job.ended for job in other.jobs.values()]
            assert own.jobs == len(ended)
            assert own.done == ended.count(Ended.DONE), (own, other)
            assert own.failed == ended.count(Ended.DEAD), (own, other)

    async def _check_values(self, info: FlowInfo) -> None:
        for node in self.model.nodes:
            stored: dict[int, bytes] = {}
            if node.is_map:
                stored.update(await self._reader().all_results(node.number))
            elif (value := (await self._reader().fields([f"y{node.number}"]))[0]) is not None:
                stored[0] = value
            for number, job in node.jobs.items():
                if job.ended is Ended.NOT_YET:
                    assert number not in stored or job.has_ended_once
                else:
                    value, is_result = split_value(stored[number])
                    assert (value, is_result) == (job.value, job.ended is Ended.DONE), info

    async def _check_keys(self, info: FlowInfo, letters: int) -> None:
        assert letters == sum(job.has_letter for _, _, job in self.model.jobs())
        home = self.keys
        found: Any = await self.lane.call("KEYS", home.tag + b":*" + info.id.encode() + b"*")
        for key in found:
            ttl_ms: Any = await self.lane.call("PTTL", key)
            assert ttl_ms > 0, f"{key!r} stays for ever"
        has_failed = home.failure(info.id) in found
        assert has_failed is (info.state is not RunState.DONE), info
        assert info.state is not RunState.DONE or home.result(info.id) in found

    def _reader(self) -> FlowReader:
        return FlowReader(self.lane, self.keys, self.run.id)
