"""Flows at random against a model of them, on two queues whose workers and relays misbehave."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from tampu import App, TampuError
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.scripts import script
from tampu.services import relay
from tests.effort import THOROUGH
from tests.faults.graph_walk import GraphWalk
from tests.faults.graphs import Tasks
from tests.servers import RunningServer

GRAPHS = int(os.environ.get("TAMPU_FAULTS_GRAPHS", "3000" if THOROUGH else "300"))
AT_ONCE = 20
MUTANT_GRAPHS = 300  # far more than it takes


class Graphs:
    """Walks with many flows, some of them at a time, each on two queues of its own."""

    def __init__(self, app: App, lane: Lane) -> None:
        self._app, self._lane = app, lane
        self._tasks = [Tasks(app, number) for number in range(AT_ONCE)]

    async def walk(self, seeds: range) -> list[str]:
        """What was wrong, by the seeds; it ends soon after something was."""
        found: list[str] = []

        async def walk_some(number: int) -> None:
            for seed in seeds[number::AT_ONCE]:
                if found:
                    return
                walk = GraphWalk(self._app, self._lane, self._tasks[number], seed)
                try:
                    await walk.go()
                except (AssertionError, TampuError) as error:
                    found.append(f"seed {seed}: {error!r}")
                finally:
                    await walk.clean_up()

        await asyncio.gather(*map(walk_some, range(AT_ONCE)))
        return found


@pytest.fixture
async def graphs(
    running: RunningServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Graphs]:
    monkeypatch.setattr(relay, "_MOST_A_CALL", 2)  # so that maps of five items grow in parts
    async with App(running.url) as app, await Lane.open(server, b"{chasqui:h0}:stream") as lane:
        yield Graphs(app, lane)


@pytest.mark.timeout(120 + GRAPHS)
async def test_flows_do_what_their_graphs_say(graphs: Graphs) -> None:
    assert await graphs.walk(range(GRAPHS)) == []


BREAKS = {
    "an end counts again": ("if old[i] == PENDING or old[i] == AGAIN then", "if true then"),
    "an end is fired twice": (
        "if is_whole and node.pending == 0 and not string.find(node.fired, 'e') then",
        "if is_whole and node.pending == 0 then",
    ),
    "generations are not compared": (
        "if each.generation >= newest and (each.kind ~= 'a' or each.generation > newest) then",
        "if true then",
    ),
    "a job is delivered twice": ("'1', 'NX', 'EX', ARGV[1])", "'1', 'EX', ARGV[1])"),
    "a map grows twice": ("tonumber(ARGV[3]) ~= node.added", "false"),
    "it ends before it resumes": ("flow.live == 0 and not flow.resumes", "flow.live == 0"),
    "the last job of a map is forgotten": (
        "is_whole = not node.is_map or node.stage == '2'",
        "is_whole = not node.is_map or node.added > 0",
    ),
    "a job that goes on is not counted": (
        "    flow.live = flow.live + 1\n    places",
        "    places",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_scripts_that_are_broken_on_purpose_are_found_out(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    good, bad = BREAKS[name]
    broken = [each for each in script._scripts if good in each._rest]
    assert broken, "the scripts have changed: break them in another way"
    for each in broken:
        monkeypatch.setattr(each, "_rest", each._rest.replace(good, bad))
    script.set_prelude(None)
    try:
        assert await graphs.walk(range(MUTANT_GRAPHS)) != []
    finally:
        monkeypatch.undo()
        script.set_prelude(None)
