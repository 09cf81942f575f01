"""Flows: the ids of their jobs, jobs before they are added, and messages between queues."""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import DecodeError, OptionError
from tampu.wire.entry import join_member
from tampu.wire.envelope import Envelope, RetryOverride, encode_envelope
from tampu.wire.extras import append_raw_extras
from tampu.wire.fields import decode_text, encode_name, pair_fields
from tampu.wire.names import FLOW_MARK

MAX_NODES: Final = 10_000
MAX_STEPS: Final = 100
_ID_SIZE: Final = 26
_MEMBER: Final = re.compile(
    r"([0-9A-Z]{26})~([0-9]{1,6})(?:\.([0-9]{1,9}))?(?:!([0-9]{1,6}))?(?:@(.+))?", re.DOTALL
)
_STEP: Final = re.compile(r"([0-9A-Z]{26})~([0-9]{1,3})/([0-9]{1,3})")
_NUMBER: Final = "0" * 9  # in ids of jobs of a batch, until the server gives them their number


# --- ids ----------------------------------------------------------------------------------------


class MemberId(Struct, frozen=True):
    """The id of a job of a flow.

    `number` counts the jobs of its node, None if it has one. `generation` says how often the job
    was replayed. `home` is the queue of the flow, None if that is the job's own.
    """

    flow: str
    node: int
    number: int | None = None
    generation: int = 0
    home: str | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f".{self.number}"
        again = f"!{self.generation}" if self.generation else ""
        home = "" if self.home is None else f"@{self.home}"
        return f"{self.flow}{FLOW_MARK}{self.node}{number}{again}{home}"

    @property
    def next_run(self) -> "MemberId":
        """The id when it runs again, after it was buried or taken out."""
        return replace(self, generation=self.generation + 1)


def is_of_flow(job_id: str) -> bool:
    """Whether a job is one of a flow or of a chain."""
    return len(job_id) > _ID_SIZE and job_id[_ID_SIZE] == FLOW_MARK


def parse_member(job_id: str) -> MemberId | None:
    """The parts of the id of a flow's job; None for any other."""
    found = _MEMBER.fullmatch(job_id) if is_of_flow(job_id) else None
    if found is None:
        return None
    flow, node, number, again, home = found.groups()
    return MemberId(flow, int(node), None if number is None else int(number), int(again or 0), home)


class StepId(Struct, frozen=True):
    """The id of a step of a chain; they count from 1."""

    chain: str
    step: int
    steps: int

    def __str__(self) -> str:
        return f"{self.chain}{FLOW_MARK}{self.step}/{self.steps}"

    @property
    def all(self) -> "list[StepId]":
        """The ids of all steps of the chain."""
        return [replace(self, step=step) for step in range(1, self.steps + 1)]

    @property
    def last(self) -> "StepId":
        """The id of the last step, which whoever waits for the chain waits for."""
        return replace(self, step=self.steps)


def parse_step(job_id: str) -> StepId | None:
    """The parts of the id of a chain's step; None for any other."""
    found = _STEP.fullmatch(job_id) if is_of_flow(job_id) else None
    return None if found is None else StepId(found[1], int(found[2]), int(found[3]))


def check_own_id(job_id: str) -> str:
    """The id that a user gives a job; `OptionError` if it is that of a job of a flow or chain."""
    if parse_member(job_id) is not None or parse_step(job_id) is not None:
        raise OptionError("job_id", job_id, "ids of this form belong to jobs of flows and chains")
    return job_id


def awaited_id(job_id: str) -> str:
    """The id under which callers wait for a job: that of the last step of its chain."""
    step = parse_step(job_id)
    return job_id if step is None else str(step.last)


def group_of(job_id: str) -> str | None:
    """What requests to cancel all jobs of a flow or chain name; None for other jobs."""
    return job_id[: _ID_SIZE + 1] if is_of_flow(job_id) else None


def parked_group(group: str) -> str:
    """What requests to take out jobs of a flow name that have not started."""
    return group + FLOW_MARK


def is_parked_group(job_id: str) -> bool:
    """Whether a request is one of these."""
    return job_id.endswith(2 * FLOW_MARK)


# --- nodes --------------------------------------------------------------------------------------


class NewMember(Struct, frozen=True, kw_only=True):
    """A job of a flow before it has an id."""

    name: str
    extras: bytes = b""
    retry: RetryOverride | None = None
    created_at_ms: int

    def to_member(self, member: MemberId | str, payload: bytes) -> bytes:
        """The job as one text, as the scripts get it."""
        envelope = Envelope(str(member), payload, self.created_at_ms, 0, self.retry)
        body = append_raw_extras(encode_envelope(envelope), self.extras)
        return join_member(encode_name(self.name), body)


def batch_id(flow_id: str, node: int) -> str:
    """The id of a job of a batch, whose number the server writes."""
    return f"{MemberId(flow_id, node)}.{_NUMBER}"


# --- messages between queues --------------------------------------------------------------------


class AddMessage(Struct, frozen=True):
    """Add a job to another queue."""

    to: str
    member: bytes


class EndMessage(Struct, frozen=True):
    """Tell the home of a flow how one of its jobs has ended."""

    to: str
    job_id: str
    kind: str
    value: bytes
    dead_id: bytes


class GrowMessage(Struct, frozen=True):
    """Add the jobs of a map."""

    flow: str
    node: int


class AskMessage(Struct, frozen=True):
    """Ask the workers of a queue to cancel or park the jobs of a flow."""

    to: str
    what: str
    flow: str

    @property
    def group(self) -> str:
        """The jobs that are meant."""
        group = self.flow + FLOW_MARK
        return parked_group(group) if self.what == "park" else group


class ResumeMessage(Struct, frozen=True):
    """Let a flow go on that was halted."""

    flow: str


Message: TypeAlias = AddMessage | EndMessage | GrowMessage | AskMessage | ResumeMessage


def decode_message(flat: Sequence[bytes]) -> Message:
    """The message in an entry of the outbox, or `DecodeError`."""
    fields = pair_fields(flat, what="message")

    def text(name: bytes) -> str:
        return decode_text(fields.get(name, b""))

    match text(b"op"):
        case "add":
            return AddMessage(text(b"to"), fields.get(b"body", b""))
        case "end":
            place = fields.get(b"place", b"")
            value = fields.get(b"value", b"")
            return EndMessage(text(b"to"), text(b"id"), text(b"kind"), value, place)
        case "grow" if text(b"node").isdigit():
            return GrowMessage(text(b"flow"), int(text(b"node")))
        case "ask":
            return AskMessage(text(b"to"), text(b"what"), text(b"flow"))
        case "resume":
            return ResumeMessage(text(b"flow"))
        case _:
            raise DecodeError("message", "this version does not know its kind")
