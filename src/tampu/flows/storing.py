"""How a flow is stored: the fields of its nodes; `parts/flow.lua` explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tampu.flows.nodes import Node, Nodes
from tampu.wire.flow import MemberId, NewMember
from tampu.wire.placeholders import MapDefinition, encode_inputs

if TYPE_CHECKING:
    from tampu.tasks.drafts import Draft
    from tampu.wire.placeholders import Later


class DraftedNode:
    """A node, the job or jobs that it stands for, and the nodes that wait for it."""

    def __init__(self, node: Node[Any], draft: Draft | None) -> None:
        self.node = node
        self.draft = draft  # None: jobs are added while the flow runs
        self.items: bytes | None = None  # of a map: an encoded list
        self.source: Later | None = None  # of a map: where its items come from
        self.has_own_lines = False  # a map whose jobs wait in lines by their items
        self.placed: list[Draft] = [] if draft is None else [draft]
        self.dependents: dict[tuple[int, str], None] = {}
        self.waits = 0


class StartContext(Struct, frozen=True):
    """The id of a flow that starts, its home queue, when, and the headers of its jobs."""

    flow_id: str
    home: str
    at_ms: int
    headers: dict[str, str]


def fields_of(drafted: DraftedNode, start: StartContext) -> dict[str, bytes | str | int]:
    """The fields of a node in the state of its flow."""
    node, draft = drafted.node, drafted.draft
    number, is_map = node.number, isinstance(node, Nodes)
    found: dict[str, bytes | str | int] = {
        f"k{number}": "m" if is_map else "s",
        f"n{number}": node.name,
        f"w{number}": drafted.waits,
        f"u{number}": int(not is_map),
        f"e{number}": int(not is_map),
        f"o{number}": ",".join(f"{then}{kind}" for then, kind in drafted.dependents),
    }
    if draft is None:
        return found | {f"j{number}": "b"}
    home = None if draft.queue == start.home else start.home
    found[f"q{number}"] = "" if home is None else draft.queue
    job = NewMember(
        name=draft.name,
        extras=draft.with_headers(start.headers).extras,
        retry=draft.retry,
        created_at_ms=start.at_ms,
    )
    if isinstance(node, Nodes):
        found[f"b{number}"] = _encode_map(drafted, draft.template, job=job, start=start)
    else:
        payload = encode_inputs(draft.template) if draft.later else draft.template
        member = MemberId(start.flow_id, number, home=home)
        found[f"b{number}"] = job.to_member(member, payload)
    if isinstance(node, Nodes) and node.tolerated:
        found[f"t{number}"] = repr(node.tolerated)
    return found


def _encode_map(
    drafted: DraftedNode, template: bytes, *, job: NewMember, start: StartContext
) -> bytes:
    source, headers = drafted.source, start.headers
    return MapDefinition(
        job=job,
        template=template,
        items=drafted.items,
        source=None if source is None else source.placeholder,
        extras=[each.with_headers(headers).extras for each in drafted.placed]
        if drafted.has_own_lines
        else None,
    ).encode()
