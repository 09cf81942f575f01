"""Flows before they start: their arguments, their edges, and what is refused."""

from dataclasses import dataclass
from typing import Any

import pytest

from tampu import (
    App,
    ArgumentError,
    Batch,
    Chain,
    Concurrency,
    Debounce,
    Flow,
    JobBatch,
    OptionError,
    Results,
    Unique,
    WrongContext,
    chain,
)
from tampu.tasks.arguments import InvalidArguments
from tampu.tasks.drafts import Draft, split_arguments
from tampu.wire.placeholders import placeholders_of

app = App("redis://192.0.2.1")


@app.task
async def count(word: str, weight: int = 1) -> int:
    return len(word) * weight


@app.task
async def add_up(counts: list[int], label: str = "") -> int:
    return sum(counts) + len(label)


@app.task
async def digits(number: int) -> list[int]:
    return [int(each) for each in str(number)]


@app.task(queue="other")
async def elsewhere(number: int) -> int:
    return number


@app.task(limits=[Concurrency(1, by="tenant")])
async def limited(tenant: str) -> str:
    return tenant


@app.task
async def join(results: Results[int]) -> int:
    return sum([each async for each in results])


@dataclass
class Page:
    url: str


@app.task(batch=Batch(10))
async def index(batch: JobBatch[Page]) -> None: ...


def drafts(flow: Flow) -> list[Draft]:
    return [each.draft for each in flow._drafted if each.draft is not None]


def edges(flow: Flow) -> list[list[str]]:
    return [[f"{then}{kind}" for then, kind in each.dependents] for each in flow._drafted]


class TestArguments:
    def test_nodes_become_placeholders_wherever_they_are(self) -> None:
        flow = app.flow()
        one = flow.add(count, "a")
        flow.add(add_up, [one.value, 2, *flow.add(digits, 12).value], label="x")
        (found,) = [each for each in drafts(flow) if len(each.later) == 2]
        assert [(each.node, each.spreads) for each in placeholders_of(found.template)] == [
            (0, False),
            (1, True),
        ]

    def test_values_that_are_known_are_told_from_those_to_come(self) -> None:
        node = app.flow().add(count, "a")
        bound = split_arguments({"a": 1, "b": node, "c": {"d": [node.value]}, "e": (1, 2)})
        assert bound.known == {"a": 1, "e": (1, 2)}
        assert len(bound.later) == 2
        assert bound.sent["e"] == [1, 2]

    def test_known_arguments_are_checked_at_once(self) -> None:
        flow = app.flow()
        node = flow.add(count, "a")
        wrong: Any = 3
        with pytest.raises(ArgumentError, match="label"):
            flow.add(add_up, [node.value], label=wrong)
        with pytest.raises(ArgumentError, match="required"):
            flow.add(count, weight=1)  # type: ignore[call-overload]
        with pytest.raises(ArgumentError):
            flow.map(count, ["a", wrong])
        with pytest.raises(ArgumentError):
            flow.map(index, [{"no": "url"}])  # type: ignore[call-overload]
        assert len(flow._drafted) == 1, "what was refused is not in the flow"

    def test_items_of_a_result_stand_in_lists_only(self) -> None:
        flow = app.flow()
        numbers = flow.add(digits, 12)
        wrong: Any = numbers.value
        in_dict: Any = {"a": next(iter(wrong))}
        for given in (*wrong, in_dict):
            with pytest.raises(OptionError, match="inside of a list"):
                flow.add(add_up, given)
            with pytest.raises(OptionError, match="inside of a list"):
                flow.add(add_up, counts=given)
        nested: Any = [[*wrong], *wrong]
        flow.add(add_up, nested)

    def test_items_can_be_counted(self) -> None:
        wrong: Any = 5
        with pytest.raises(OptionError, match="expected items"):
            app.flow().map(count, wrong)

    def test_a_limit_by_an_item_needs_items_that_are_known(self) -> None:
        flow = app.flow()
        names = flow.map(limited, ["a", "b"])
        with pytest.raises(OptionError, match="tenant"):
            flow.map(limited, names)
        with pytest.raises(OptionError, match="tenant"):
            flow.add(limited, flow.add(limited, "a"))

    def test_a_record_of_a_batch_may_be_a_result(self) -> None:
        flow = app.flow()
        flow.map(index, [Page("/")])
        (draft,) = drafts(flow)
        assert [each.expected for each in placeholders_of(draft.template)]


class TestResults:
    def test_a_reference_is_read(self) -> None:
        convert = join.definition.arguments.convert
        found = convert({"results": {"flow": "F", "node": 3, "queue": "q"}})["results"]
        assert isinstance(found, Results)
        assert repr(found) == "<Results of node 3 of F>"
        assert (found.flow, found.node, found.queue) == ("F", 3, "q")

    @pytest.mark.parametrize("data", [None, 5, "F", {}, {"flow": "F"}, [1, 2, 3]])
    def test_what_is_none_is_refused(self, data: object) -> None:
        with pytest.raises(InvalidArguments, match="results"):
            join.definition.arguments.convert({"results": data})

    async def test_they_are_read_by_a_job_only(self) -> None:
        reference = {"flow": "F", "node": 3, "queue": "q"}
        results = join.definition.arguments.convert({"results": reference})["results"]
        with pytest.raises(OptionError, match="only by the task"):
            await anext(aiter(results))


class TestEdges:
    def test_an_argument_says_what_it_needs(self) -> None:
        flow = app.flow()
        one, many = flow.add(count, "a"), flow.map(count, ["b"])
        flow.add(add_up, many)
        flow.add(add_up, counts=[one.default(1).value])
        flow.add(add_up, many.default([]))
        last = flow.add(count, "c")
        assert last.after(one, many) is last
        assert last.needs(one) is last
        assert edges(flow) == [["3e", "5a", "5s"], ["2s", "4e", "5a"], [], [], [], []]

    def test_the_same_edge_counts_once(self) -> None:
        flow = app.flow()
        one = flow.add(count, "a")
        flow.add(add_up, [one.value, one.value]).needs(one).needs(one)
        assert edges(flow) == [["1s"], []]
        assert [each.waits for each in flow._drafted] == [0, 1]

    def test_a_map_waits_for_its_items(self) -> None:
        flow = app.flow()
        words = flow.add(add_up, [])
        wrong: Any = words
        flow.map(count, wrong)
        assert edges(flow) == [["1s"], []]

    def test_no_job_waits_for_itself(self) -> None:
        flow = app.flow()
        one = flow.add(count, "a")
        two = flow.add(add_up, [one.value])
        three = flow.add(count, "b").after(two)
        for node in (one, two, three):
            with pytest.raises(OptionError, match="waits for"):
                one.after(node)

    def test_nodes_of_other_flows_are_refused(self) -> None:
        flow, other = app.flow(), app.flow()
        node = other.add(count, "a")
        with pytest.raises(OptionError, match="another flow"):
            flow.add(add_up, [node.value])
        with pytest.raises(OptionError, match="another flow"):
            flow.add(count, "a").after(node)
        wrong: Any = "a"
        with pytest.raises(OptionError, match="expected a node"):
            flow.add(count, "a").needs(wrong)

    @pytest.mark.parametrize("share", [-0.1, 1.1, True, "1", None])
    def test_a_share_is_from_0_to_1(self, share: object) -> None:
        with pytest.raises(OptionError, match="tolerate"):
            app.flow().map(count, ["a"]).tolerate(share)  # type: ignore[arg-type]


class TestTasks:
    @pytest.mark.parametrize(
        "options",
        [
            {"delay": "1h"},
            {"job_id": "mine"},
            {"unique": Unique(key="k")},
            {"expires": "1h"},
            {"key": "k", "debounce": Debounce("1s")},
            {"key": "k", "max_waiting": 3},
        ],
    )
    def test_options_of_the_time_before_a_job_starts_are_refused(
        self, options: dict[str, Any]
    ) -> None:
        task = count.options(**options)
        with pytest.raises(OptionError, match="they cannot have it"):
            app.flow().add(task, "a")
        with pytest.raises(OptionError, match="they cannot have it"):
            count.call("a").then(elsewhere.options(queue="default", **options))

    def test_a_chain_has_one_queue_and_a_hundred_steps(self) -> None:
        with pytest.raises(OptionError, match="use a flow"):
            count.call("a").then(elsewhere)
        wrong: Any = count
        with pytest.raises(OptionError, match="begins with a call"):
            chain(wrong, count)
        longest: Chain[Any] = elsewhere.call(1).then(elsewhere)
        for _ in range(98):
            longest = longest.then(elsewhere)
        with pytest.raises(OptionError, match="at most 100 steps"):
            longest.then(elsewhere)

    def test_a_longer_chain_leaves_the_shorter_one_as_it_is(self) -> None:
        one = elsewhere.call(1).then(elsewhere)
        two = one.then(elsewhere)
        assert repr(one) == "<Chain elsewhere > elsewhere>"
        assert repr(two) == "<Chain elsewhere > elsewhere > elsewhere>"


class TestStarting:
    async def test_a_flow_without_nodes_is_refused(self) -> None:
        with pytest.raises(OptionError, match="no nodes"):
            await app.flow().start()

    async def test_the_result_is_a_node_of_the_flow(self) -> None:
        flow = app.flow()
        flow.add(count, "a")
        with pytest.raises(OptionError, match="another flow"):
            await flow.start(result=app.flow().add(count, "a"))

    def test_names_and_options_are_checked(self) -> None:
        wrong: Any = 1
        for options in (
            {"name": wrong},
            {"queue": "a b"},
            {"fail_fast": wrong},
            {"result_ttl": -1},
        ):
            with pytest.raises(OptionError):
                app.flow(**options)

    def test_a_flow_has_at_most_ten_thousand_nodes(self) -> None:
        flow = app.flow()
        flow.add(count, "a")
        flow._drafted *= 10_000
        with pytest.raises(OptionError, match="use map"):
            flow.add(count, "a")

    def test_what_is_printed_has_no_arguments(self) -> None:
        flow = app.flow("index")
        node, nodes = flow.add(count, "secret"), flow.map(count, ["secret"])
        shown = [flow, node, nodes, node.outcome, node.default("secret"), count.call("secret")]
        shown += [count.call("secret").then(elsewhere.options(queue="default"))]
        shown += [app.batch(on_success=count.call("secret")), app.flow_run("F"), node.value]
        for each in shown:
            assert "secret" not in repr(each)
        assert repr(flow) == "<Flow 'index' with 2 nodes>"
        assert repr(nodes) == "<Nodes 1 'count'>"
        assert repr(node.default("secret")) == "<Edge from node 0: default>"


def test_a_batch_is_used_in_a_block() -> None:
    with pytest.raises(WrongContext, match="async with"):
        _ = app.batch().run
    with pytest.raises(WrongContext, match="no job is running"):
        app.own_batch()
