"""`tampu flow`, as users run it."""

import pytest

from tests.contract.apps import working
from tests.contract.cli import tampu
from tests.contract.flow_runs import FlowShop, wait_for_state
from tests.servers import RunningServer

QUEUE = "default"
FLOW_KEYS = [
    *("id", "name", "queue", "state", "started_at", "ended_at", "jobs", "done", "failed"),
    *("is_growing", "lost"),
]
NODE_KEYS = [
    *("number", "name", "queue", "state", "is_map", "is_growing", "jobs", "done", "failed"),
    *("waits_for", "missing", "job_id", "started_at", "ended_at"),
]


@pytest.fixture
def shop(running: RunningServer) -> FlowShop:
    return FlowShop(running.url)


async def test_flows_are_listed_newest_first_and_by_state(
    running: RunningServer, shop: FlowShop
) -> None:
    url = running.url
    async with working(shop.app, {QUEUE: 5, "other": 5}):
        done, bad = await shop.start_sum(), await shop.start_failing()
        assert await done.result(20) == 3
        await wait_for_state(bad, "failed")
    listed = await tampu("flow", "ls", QUEUE, url=url)
    assert listed.lines[0].split() == [
        *("Id", "Name", "State", "Progress", "Done", "Failed", "Age", "Took"),
    ]
    assert sorted(line.split()[:6] for line in listed.lines[1:]) == sorted(
        [
            [bad.id, "bad", "failed", "░░░░░░░░░░", "0/2", "1"],
            [done.id, "sum", "done", "██████████", "5/5", "0"],
        ]
    )
    assert max(map(len, listed.lines)) <= 80
    told = (await tampu("flow", "ls", QUEUE, "--state", "done", "--json", url=url)).json
    assert (told["queue"], [list(each) for each in told["flows"]]) == (QUEUE, [FLOW_KEYS])
    assert [(each["id"], each["jobs"]) for each in told["flows"]] == [(done.id, 5)]
    one = (await tampu("flow", "ls", QUEUE, "-n", "1", "--json", url=url)).json
    assert [each["id"] for each in one["flows"]] == [listed.lines[1].split()[0]]
    none = await tampu("flow", "ls", QUEUE, "--state", "halted", url=url)
    assert (none.code, none.out) == (0, "There are no flows.\n")
    wrong = await tampu("flow", "ls", QUEUE, "--state", "broken", url=url)
    known = "expected one of running, halted, done, failed, cancelled."
    assert (wrong.code, wrong.err) == (2, f"tampu: Invalid --state 'broken': {known}\n")


async def test_a_flow_is_shown_with_its_nodes_and_its_error(
    running: RunningServer, shop: FlowShop
) -> None:
    url = running.url
    async with working(shop.app, {QUEUE: 5, "other": 5}):
        done, bad = await shop.start_sum(), await shop.start_failing()
        await done.result(20)
        await wait_for_state(bad, "failed")
    shown = await tampu("flow", "show", QUEUE, bad.id, url=url)
    assert max(map(len, shown.lines)) <= 80
    head = [line for line in shown.lines if line.split()[:1] in (["State"], ["Error"], ["Jobs"])]
    assert [" ".join(line.split()) for line in head] == [
        "State failed",
        "Jobs 0/2 done, 1 failed, 0 running",
        "Error ValueError: no luck",
    ]
    table = [line.split() for line in shown.lines if line.strip()[:2] in {"0 ", "1 "}]
    assert [line[:6] for line in table] == [
        ["0", "boom", "other", "failed", "0/1", "1"],
        ["1", "count", QUEUE, "waiting", "0/1", "0"],
    ]
    assert (table[0][7:], table[1][6:]) == (["-"], ["-", "0", "boom"])
    assert "Traceback (most recent call last):" in shown.lines

    told = (await tampu("flow", "show", QUEUE, done.id, "--json", url=url)).json
    assert list(told) == [*FLOW_KEYS, "result_node", "failure", "nodes"]
    assert [list(each) for each in told["nodes"]] == [NODE_KEYS] * 3
    assert [(each["is_map"], each["done"], each["queue"]) for each in told["nodes"]] == [
        (False, 1, QUEUE),
        (True, 3, QUEUE),
        (False, 1, "other"),
    ]
    assert [each["waits_for"] for each in told["nodes"]] == [
        [],
        [{"node": 0, "kind": "success"}],
        [{"node": 1, "kind": "success"}],
    ]
    times = [told["started_at"]]
    for node in told["nodes"]:
        times += [node["started_at"], node["ended_at"]]
    assert times == sorted(times)
    assert (told["result_node"], told["failure"], told["ended_at"] >= times[-1]) == (2, None, True)


async def test_a_flow_is_retried_on_all_its_queues(running: RunningServer, shop: FlowShop) -> None:
    url = running.url
    async with working(shop.app, {QUEUE: 5, "other": 5}):
        bad = await shop.start_failing()
        await wait_for_state(bad, "failed")
        kept = await tampu("flow", "retry", QUEUE, bad.id, url=url, typed="no\n")
        question = "Run 1 dead letter of flow bad again? [y/N] "
        assert (kept.code, kept.err) == (1, f"{question}tampu: Nothing was changed.\n")
        shop.fails = False
        again = (await tampu("flow", "retry", QUEUE, bad.id, "-y", "--json", url=url)).json
        assert list(again) == ["queue", "flow_id", "replayed", "state"]
        assert (again["flow_id"], again["replayed"]) == (bad.id, 1)
        assert await bad.result(20) == 7
        late = await tampu("flow", "retry", QUEUE, bad.id, "-y", url=url)
    sentence = f"tampu: Flow {bad.id!r} cannot be retried: it is done.\n"
    assert (late.code, late.err) == (1, sentence)


async def test_a_flow_is_cancelled_once(running: RunningServer, shop: FlowShop) -> None:
    url, run = running.url, await shop.start_sum()
    kept = await tampu("flow", "cancel", QUEUE, run.id, url=url, typed="\n")
    question = "Cancel flow sum with 2 jobs not done? [y/N] "
    assert (kept.code, kept.err) == (1, f"{question}tampu: Nothing was changed.\n")
    done = await tampu("flow", "cancel", QUEUE, run.id, "-y", "--json", url=url)
    assert done.json == {"queue": QUEUE, "flow_id": run.id, "cancelled": True}
    info = await run.info()
    assert info is not None
    assert info.state.value == "cancelled"
    late = await tampu("flow", "cancel", QUEUE, run.id, url=url)
    sentence = f"tampu: Flow {run.id!r} cannot be cancelled: it is cancelled.\n"
    assert (late.code, late.err) == (1, sentence)
    with running.admin() as admin:  # its job never ended, and the flow is forgotten all the same
        assert admin.ttl(f"{{chasqui:{QUEUE}}}:tampu:flow:{run.id}") > 0
    await shop.app.close()


async def test_an_id_that_is_no_flow_is_explained(running: RunningServer, shop: FlowShop) -> None:
    url, run = running.url, await shop.start_sum()
    for typed, why in {
        "nothing": "It was never started, ended long ago, or another queue keeps it",
        f"{run.id}~0": f"That is a job of the flow {run.id}",
        f"{run.id}~1/3": "That is a job of a chain, which `tampu job show` shows",
    }.items():
        for verb in (["show"], ["cancel", "-y"], ["retry", "-y"]):
            found = await tampu("flow", *verb, QUEUE, typed, url=url)
            sentence = f"tampu: Queue 'default' has no flow {typed!r}. {why}.\n"
            assert (found.code, found.out, found.err) == (1, "", sentence)
    await shop.app.close()
