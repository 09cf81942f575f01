"""Ids of jobs of flows and chains, jobs before they are added, messages between queues."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.errors import DecodeError, OptionError
from tampu.job import NewJob
from tampu.producer.request import JobRules, request_for
from tampu.wire.entry import decode_member
from tampu.wire.envelope import RetryOverride, decode_envelope
from tampu.wire.extras import Extras, decode_extras, encode_extras
from tampu.wire.flow import (
    AddMessage,
    AskMessage,
    EndMessage,
    GrowMessage,
    MemberId,
    Message,
    NewMember,
    ResumeMessage,
    StepId,
    awaited_id,
    batch_id,
    check_own_id,
    decode_message,
    group_of,
    is_of_flow,
    is_parked_group,
    parked_group,
    parse_member,
    parse_step,
)

FLOW = "01M7T0SVQ4001YS9ESWYMX2CS5"
RULES = JobRules(max_payload=1000, max_delay_ms=1000, unique_ms=1000)
QUEUES = st.text(min_size=1, max_size=20).filter(lambda name: "\n" not in name)


class TestMemberIds:
    @given(
        node=st.integers(0, 9_999),
        number=st.none() | st.integers(0, 999_999_999),
        generation=st.integers(0, 999_999),
        home=st.none() | QUEUES,
    )
    def test_an_id_is_read_as_it_was_made(
        self, node: int, number: int | None, generation: int, home: str | None
    ) -> None:
        member = MemberId(FLOW, node, number, generation, home)
        assert parse_member(str(member)) == member
        assert parse_step(str(member)) is None
        assert is_of_flow(str(member))
        assert awaited_id(str(member)) == str(member)
        assert group_of(str(member)) == f"{FLOW}~"

    def test_the_parts_are_where_they_were(self) -> None:
        assert str(MemberId(FLOW, 3)) == f"{FLOW}~3"
        assert str(MemberId(FLOW, 3, 0)) == f"{FLOW}~3.0"
        assert str(MemberId(FLOW, 3, 17, 2, "home")) == f"{FLOW}~3.17!2@home"

    def test_the_next_run_has_the_next_generation(self) -> None:
        again = MemberId(FLOW, 3, 17, home="home").next_run
        assert str(again.next_run) == f"{FLOW}~3.17!2@home"

    @pytest.mark.parametrize("home", ["a.b", "a!1", "a@b", "~", "ü", "a~1.2!3@x"])
    def test_a_queue_may_have_any_name(self, home: str) -> None:
        member = MemberId(FLOW, 1, 2, 3, home)
        assert parse_member(str(member)) == member

    @pytest.mark.parametrize(
        "job_id",
        [
            "",
            "~",
            "order:17",
            "~1",
            f"{FLOW}",
            f"{FLOW}~",
            f"{FLOW}~x",
            f"{FLOW}~1.",
            f"{FLOW}~1.x",
            f"{FLOW}~1!",
            f"{FLOW}~1@",
            f"{FLOW}~-1",
            f"{FLOW}~1 ",
            f"{FLOW}~1\n",
            f"{FLOW}~1!2.3",
            f"{FLOW}~1/2/3",
            f"{FLOW}~1234567",
            f"{FLOW[:-1]}~1",
            f"{FLOW}0~1",
            f"{FLOW[:-1]} ~1",
            f"{FLOW}~\u0663",
            f"{'ä' * 26}~1",
            f"{'a' * 26}~1",
            "~" * 100,
        ],
    )
    def test_other_ids_are_of_no_flow(self, job_id: str) -> None:
        assert parse_member(job_id) is None
        assert parse_step(job_id) is None
        assert awaited_id(job_id) == job_id

    @given(st.text(max_size=60))
    def test_any_text_can_be_an_id(self, job_id: str) -> None:
        member = parse_member(job_id)
        assert member is None or is_of_flow(job_id)
        awaited_id(job_id)


class TestIdsOfUsers:
    @pytest.mark.parametrize("rest", ["~1", "~1.2", "~1!2@home", "~1/2"])
    def test_ids_of_jobs_of_flows_and_chains_are_refused(self, rest: str) -> None:
        with pytest.raises(OptionError, match="belong to jobs of flows"):
            check_own_id(f"{FLOW}{rest}")
        with pytest.raises(OptionError, match="belong to jobs of flows"):
            request_for(NewJob("work", job_id=f"{FLOW}{rest}"), RULES, 5)

    @pytest.mark.parametrize("job_id", [FLOW, "order:17", f"{FLOW}~x", "~1", f"{FLOW}~1 "])
    def test_others_are_not(self, job_id: str) -> None:
        assert check_own_id(job_id) == job_id


class TestStepIds:
    def test_an_id_is_read_as_it_was_made(self) -> None:
        step = StepId(FLOW, 2, 100)
        assert str(step) == f"{FLOW}~2/100"
        assert parse_step(str(step)) == step
        assert parse_member(str(step)) is None
        assert group_of(str(step)) == f"{FLOW}~"

    def test_the_last_step_is_the_one_that_is_waited_for(self) -> None:
        assert str(StepId(FLOW, 2, 7).last) == f"{FLOW}~7/7"
        assert awaited_id(f"{FLOW}~2/7") == f"{FLOW}~7/7"


class TestGroups:
    def test_all_jobs_of_a_flow_and_those_that_have_not_started_are_two_groups(self) -> None:
        group = group_of(f"{FLOW}~3.1")
        assert group is not None
        assert not is_parked_group(group)
        assert is_parked_group(parked_group(group))
        assert group_of("order:17") is None

    def test_a_message_names_its_group(self) -> None:
        assert AskMessage("q", "cancel", FLOW).group == f"{FLOW}~"
        assert AskMessage("q", "park", FLOW).group == f"{FLOW}~~"


class TestNewMembers:
    def test_a_job_has_everything_that_it_was_given(self) -> None:
        extras = encode_extras(Extras(timeout_ms=1000)) or b""
        retry = RetryOverride(max_attempts=3, backoff=None)
        job = NewMember(name="resize", extras=extras, retry=retry, created_at_ms=5)
        parts = decode_member(job.to_member(MemberId(FLOW, 2, 7), b"\x01"))
        envelope = decode_envelope(parts.envelope)
        assert parts.name == "resize"
        assert decode_extras(parts.extras).timeout_ms == 1000
        assert (envelope.id, envelope.payload) == (f"{FLOW}~2.7", b"\x01")
        assert (envelope.created_at_ms, envelope.retry) == (5, retry)

    @pytest.mark.parametrize("node", [0, 10, 9_999])
    def test_a_job_of_a_batch_has_room_for_its_number(self, node: int) -> None:
        with_room = batch_id(FLOW, node)
        assert with_room.count(f"~{node}.000000000") == 1
        numbered = with_room.replace("000000000", "000000123", 1)
        assert parse_member(numbered) == MemberId(FLOW, node, 123)


class TestMessages:
    @pytest.mark.parametrize(
        ("flat", "message"),
        [
            ([b"op", b"add", b"to", b"q", b"body", b"\xff"], AddMessage("q", b"\xff")),
            (
                [
                    *(b"op", b"end", b"to", b"q", b"id", b"i", b"kind", b"d"),
                    *(b"value", b"\xc0", b"place", b"1-0"),
                ],
                EndMessage("q", "i", "d", b"\xc0", b"1-0"),
            ),
            ([b"op", b"grow", b"flow", b"F", b"node", b"12"], GrowMessage("F", 12)),
            (
                [b"op", b"ask", b"to", b"q", b"what", b"park", b"flow", b"F"],
                AskMessage("q", "park", "F"),
            ),
            ([b"op", b"resume", b"flow", b"F"], ResumeMessage("F")),
            ([b"op", b"resume", b"flow", b"F", b"new", b"x"], ResumeMessage("F")),
        ],
    )
    def test_each_is_read(self, flat: Sequence[bytes], message: Message) -> None:
        assert decode_message(flat) == message

    @pytest.mark.parametrize(
        "flat",
        [
            [],
            [b"op"],
            [b"op", b"new"],
            [b"op", b"grow", b"flow", b"F", b"node", b"x"],
            [b"op", b"grow", b"flow", b"F"],
            [b"op", b"\xff\xfe"],
            [b"to", b"q"],
        ],
    )
    def test_others_are_refused(self, flat: Sequence[bytes]) -> None:
        with pytest.raises(DecodeError):
            decode_message(flat)
