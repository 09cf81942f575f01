"""Does to one flow whatever may happen: workers, relays that repeat themselves, users, replays."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any, Final

from msgspec import Struct
from msgspec.msgpack import encode

from tampu import App, DeadLetter
from tampu.admin.flow_info import RunState
from tampu.flows.run import FlowRun
from tampu.server.flows import FlowReader
from tampu.server.lane import Lane
from tampu.server.scripts.flows import (
    MemberEntry,
    MemberTarget,
    deliver_members,
    end_members,
    resume_flow,
    settle_members,
)
from tampu.server.scripts.settling import Claim
from tampu.server.streams import create_group, delete_entries, entries_from
from tampu.services.relay import MapGrowth
from tampu.wire.dead import BuryReason, DeadEntry, Failure, encode_dead
from tampu.wire.entry import decode_entry, id_of_member, join_member
from tampu.wire.envelope import Envelope, decode_envelope, encode_envelope
from tampu.wire.flow import (
    AddMessage,
    AskMessage,
    EndMessage,
    GrowMessage,
    MemberId,
    Message,
    ResumeMessage,
    decode_message,
    parse_member,
)
from tampu.wire.keys import QueueKeys
from tampu.wire.result import encode_cancelled, encode_failure
from tests.faults.graph_check import RestCheck
from tests.faults.graphs import Ended, ModelJob, RandomGraph, Tasks
from tests.gates import GROUP

STEPS_LIMIT: Final = 5000
MOST_REVIVALS: Final = 4
MOST_PARKED: Final = 3
FAILURE: Final = encode_failure(BuryReason.UNRECOVERABLE, Failure("ValueError", "no"))
_ENDS: Final = {"s": Ended.DONE, "d": Ended.DEAD, "c": Ended.DEAD}


class HeldEntry(Struct, frozen=True):
    """An entry that a worker has read."""

    entry_id: bytes
    member: MemberId
    envelope: Envelope
    raw_name: bytes


class QueueSide:
    """One of the two queues: what was read there, and what waits in its outbox."""

    def __init__(self, name: str, *, is_home: bool) -> None:
        self.name, self.is_home = name, is_home
        self.keys = QueueKeys(name)
        self.claim = Claim(self.keys.stream, GROUP, self.keys.gate)
        self.held: list[HeldEntry] = []
        self.outbox: list[tuple[bytes, Message]] = []
        self.brought: list[Message] = []  # they may be brought again
        self.last_read = b"-"
        self.last_message = b"-"


class GraphWalk:
    """Does with one flow what may happen to it, in any order, and compares it with its model."""

    def __init__(self, app: App, lane: Lane, tasks: Tasks, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311 - flows and steps
        self.app, self.lane = app, lane
        self.home = QueueSide(tasks.home, is_home=True)
        self.away = QueueSide(tasks.away, is_home=False)
        is_fast = self.rng.random() < 0.35
        flow = app.flow("random", queue=tasks.home, fail_fast=is_fast)
        self.graph = RandomGraph(flow, tasks, self.rng)
        self.model = self.graph.model
        self.failing = self.rng.choice((0, 0, 0.15, 0.4))
        self.cancels_at = self.rng.randint(0, 30) if self.rng.random() < 0.12 else -1
        self.is_cancelled = self.asks_to_park = self.asks_to_cancel = False
        self.growing: list[tuple[bytes, int, MapGrowth]] = []
        self.revivals = 0
        self.parked: dict[tuple[int, int], int] = {}  # how often each job was taken out
        self.run: FlowRun[Any] = FlowRun(app, tasks.home, "")

    async def go(self) -> None:
        """From the start of the flow until nothing happens any more."""
        for side in (self.home, self.away):
            await create_group(self.lane, side.keys.stream, GROUP)
        self.run = await self._start()
        for step in range(STEPS_LIMIT):
            if step == self.cancels_at:
                await self._cancel()
            actions = self._actions()
            if not actions or self.rng.random() < 0.4:
                await self._look()
                actions = self._actions()
            if actions:
                await self.rng.choice(actions)()
                await self._interfere()
            elif not await self._revive():
                break
        else:
            raise AssertionError("it does not end")
        await self.check()

    async def _start(self) -> FlowRun[Any]:
        result = self.graph.result
        if result is None:
            return await self.graph.flow.start()
        return await self.graph.flow.start(result=result)

    # --- workers --------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Workers read entries, relays messages."""
        await asyncio.gather(*map(self._look_at, (self.home, self.away)))

    async def _look_at(self, side: QueueSide) -> None:
        count = self.rng.choice((1, 3, 100))
        head = ("XREADGROUP", "GROUP", GROUP, b"w", "COUNT", count, "STREAMS", side.keys.stream)
        found, messages = await asyncio.gather(
            self.lane.call(*head, ">"),
            entries_from(self.lane, side.keys.outbox, start=side.last_message, count=100),
        )
        reply: Any = found
        for entry_id, flat in reply[0][1] if reply else ():
            side.held.append(self._read(entry_id, flat))
        for entry_id, flat in messages:
            side.outbox.append((entry_id, decode_message(flat or ())))
            side.last_message = b"(" + entry_id

    def _read(self, entry_id: bytes, flat: list[bytes]) -> HeldEntry:
        entry = decode_entry(flat)
        assert entry.envelope is not None
        envelope = decode_envelope(entry.envelope)
        member = parse_member(envelope.id)
        assert member is not None, envelope.id
        node, job = self._place(member)
        assert self.model.may_start(self.model.nodes[node]), f"{envelope.id} starts too early"
        held = sum(self._place(each.member)[1] is job for each in self._all_held())
        assert job.starts + held < job.allowed, f"{envelope.id} is added once too often"
        if job.is_parked and member.generation > job.generation:  # the flow goes on
            job.is_parked, job.generation = False, member.generation
        return HeldEntry(entry_id, member, envelope, entry.raw_name)

    def _all_held(self) -> list[HeldEntry]:
        return [*self.home.held, *self.away.held]

    def _place(self, member: MemberId) -> tuple[int, ModelJob]:
        jobs = self.model.nodes[member.node].jobs
        assert (member.number or 0) in jobs, f"{member} is not known yet"
        return member.node, jobs[member.number or 0]

    async def _settle(self, side: QueueSide) -> None:
        count = self.rng.randint(1, min(4, len(side.held)))
        chosen = [side.held.pop(self.rng.randrange(len(side.held))) for _ in range(count)]
        entries = [self._ended(each) for each in chosen]
        target = MemberTarget(side.keys, side.claim, 0)
        flags = await settle_members(self.lane, target, entries)
        assert flags == b"1" * len(entries), flags
        if self.rng.random() < 0.2:  # sent again after a lost reply
            again = await settle_members(self.lane, target, entries)
            assert again == b"0" * len(entries), again
        if side.is_home:
            for entry, held in zip(entries, chosen, strict=True):
                self._note_end(
                    held.member, entry.kind.decode(), entry.value, has_letter=bool(entry.dead)
                )

    def _ended(self, held: HeldEntry) -> MemberEntry:
        job_id, member = held.envelope.id, held.member
        _, job = self._place(member)
        place = member.node, member.number or 0
        can_park = self.asks_to_park and self.parked.get(place, 0) < MOST_PARKED
        if can_park and self.rng.random() < 0.6:
            self.parked[place] = self.parked.get(place, 0) + 1
            again = member.next_run
            envelope = Envelope(str(again), held.envelope.payload, 0, 0, None)
            text = join_member(held.raw_name, encode_envelope(envelope))
            return MemberEntry(held.entry_id, job_id, b"p", b"%d %b" % (again.generation, text))
        job.starts += 1
        if self.asks_to_cancel and self.rng.random() < 0.7:
            return MemberEntry(held.entry_id, job_id, b"c", encode_cancelled())
        if self.rng.random() < self.failing:
            letter = DeadEntry(
                envelope=encode_envelope(held.envelope),
                source_id=held.entry_id.decode(),
                reason=BuryReason.UNRECOVERABLE,
                raw_name=held.raw_name,
            )
            dead = encode_dead(letter)
            return MemberEntry(held.entry_id, job_id, b"d", FAILURE, dead=dead)
        value = encode([self.rng.randrange(100)] * self.rng.randint(0, 4))
        return MemberEntry(held.entry_id, job_id, b"s", value)

    def _note_end(self, member: MemberId, kind: str, value: bytes, *, has_letter: bool) -> None:
        node, job = self._place(member)
        if kind == "a":
            self.model.replay(node, member.number or 0, member.generation)
        elif kind == "p":
            if member.generation >= job.generation and job.ended is Ended.NOT_YET:
                job.is_parked = True
        elif self.model.end(
            node, member.number or 0, member.generation, ended=_ENDS[kind], value=value
        ):
            job.has_letter = has_letter

    # --- relays ---------------------------------------------------------------------------------

    async def _bring_next(self, side: QueueSide) -> None:
        """The relay brings a message, and may crash before it deletes it."""
        entry_id, message = side.outbox[0]
        await self._bring(side, message, entry_id)
        if self.rng.random() < 0.3:
            return  # and so it comes again
        side.outbox.pop(0)
        side.brought.append(message)
        if not isinstance(message, GrowMessage):
            await delete_entries(self.lane, side.keys.outbox, [entry_id])

    async def _bring_again(self, side: QueueSide) -> None:
        """A relay that was paused goes on, long after another one took its place."""
        await self._bring(side, self.rng.choice(side.brought), b"")

    async def _bring(self, side: QueueSide, message: Message, entry_id: bytes) -> None:
        match message:
            case AddMessage(_, member):
                job_id = id_of_member(member)
                assert job_id is not None
                await deliver_members(self.lane, self._other(side).keys, [(job_id, member)])
            case EndMessage():
                await end_members(self.lane, self._other(side).keys, [(message, side.name)])
                found = parse_member(message.job_id)
                assert found is not None
                self._note_end(found, message.kind, message.value, has_letter=bool(message.dead_id))
            case GrowMessage(_, node):
                self.growing.append((entry_id, node, MapGrowth(self.lane, side.keys, message)))
            case AskMessage(_, what):
                if what == "park":
                    self.asks_to_park = True
                else:
                    self.asks_to_cancel = True
            case ResumeMessage():
                await self._resume()

    def _other(self, side: QueueSide) -> QueueSide:
        return self.away if side.is_home else self.home

    async def _grow(self) -> None:
        """A map gets some more jobs; this relay may be one of two."""
        at = self.rng.randrange(len(self.growing))
        entry_id, number, growth = self.growing[at]
        goes_on = await growth.grow()
        node = self.model.nodes[number]
        names = [f"p{number}", f"z{number}"]
        added, stage = await FlowReader(self.lane, self.home.keys, self.run.id).fields(names)
        assert self.model.may_start(node), f"node {number} grows too early"
        self.model.grow(number, int(added or 0))
        if stage == b"2" and not node.is_whole:
            least, most = self.model.size_of(node)
            assert least <= len(node.jobs) <= most, f"node {number} has {len(node.jobs)} jobs"
            self.model.close(number)
        if not goes_on:
            del self.growing[at]
            if entry_id:
                await delete_entries(self.lane, self.home.keys.outbox, [entry_id])

    # --- users ----------------------------------------------------------------------------------

    def _actions(self) -> list[Callable[[], Awaitable[None]]]:
        found: list[Callable[[], Awaitable[None]]] = []
        for side in (self.home, self.away):
            if side.held:
                found += [partial(self._settle, side)] * 2
            if side.outbox:
                found += [partial(self._bring_next, side)] * 2
        if self.growing:
            found += [self._grow, self._grow]
        return found

    async def _interfere(self) -> None:
        """What may happen at any time."""
        chance = self.rng.random()
        side = self.rng.choice((self.home, self.away))
        if chance < 0.06 and side.brought:
            await self._bring_again(side)
        elif chance < 0.12:
            await self._end_once_more()
        elif chance < 0.17:
            await self._replay_some()
        elif chance < 0.18:
            await self._resume()

    async def _end_once_more(self) -> None:
        """Somebody else ran a job as well, and ends it, maybe in another way."""
        started = [
            (node.number, number if node.is_map else None, job)
            for node, number, job in self.model.jobs()
            if job.starts and not job.is_parked
        ]
        if not started:
            return
        node, number, job = self.rng.choice(started)
        kind = self.rng.choice("sd")
        value = encode([7]) if kind == "s" else FAILURE
        member = MemberId(self.run.id, node, number, self.rng.randint(0, job.generation))
        message = EndMessage(self.home.name, str(member), kind, value, b"")
        await end_members(self.lane, self.home.keys, [(message, self.away.name)])
        job.is_copied = True
        self._note_end(member, kind, value, has_letter=False)

    async def _cancel(self) -> None:
        before = await self.app.queue(self.home.name).flows.info(self.run.id)
        assert before is not None
        could = before.state not in {RunState.DONE, RunState.CANCELLED}
        assert await self.run.cancel() is could
        assert not await self.run.cancel()
        self.is_cancelled |= could

    async def _letters(self) -> list[tuple[QueueSide, DeadLetter]]:
        return [
            (side, letter)
            for side in (self.home, self.away)
            for letter in await self.app.queue(side.name).dead.peek(100)
        ]

    async def _replay_some(self) -> None:
        letters = await self._letters()
        for side, letter in self.rng.sample(letters, min(len(letters), self.rng.choice((1, 2)))):
            dead = self.app.queue(side.name).dead
            assert await dead.replay(ids=[letter.dead_id]) == 1
            assert await dead.replay(ids=[letter.dead_id]) == 0
            self._note_replay(side, letter)

    def _note_replay(self, side: QueueSide, letter: DeadLetter) -> None:
        member = parse_member(letter.job_id or "")
        assert member is not None
        _, job = self._place(member)
        job.allowed += 1
        self.failing /= 2
        if side.is_home:
            self._note_end(member.next_run, "a", b"", has_letter=False)

    async def _resume(self) -> None:
        await resume_flow(self.lane, self.home.keys, self.run.id, count=1000)

    async def _revive(self) -> bool:
        """The flow is at rest: look at it, and maybe let it go on."""
        await self.check()
        self.revivals += 1
        letters = await self._letters()
        if not letters or self.revivals > MOST_REVIVALS or self.rng.random() < 0.15:
            return False
        if self.rng.random() < 0.5:
            await self._replay_some()
        else:
            known = [each for each in letters if self._is_known(each[1])]
            assert await self.run.retry() == len(known)
            for side, letter in known:
                self._note_replay(side, letter)
        return True

    def _is_known(self, letter: DeadLetter) -> bool:
        """Whether the flow knows of it: it does not if another run of the job ended before."""
        member = parse_member(letter.job_id or "")
        assert member is not None
        return self._place(member)[1].has_letter

    async def check(self) -> None:
        """Compare the flow with its model; nothing of it waits or runs."""
        look = RestCheck(self.model, self.run, self.lane, QueueKeys(self.home.name))
        letters = await self.app.queue(self.home.name).flows.dead_letters(self.run.id)
        await look.check(letters, is_cancelled=self.is_cancelled)

    async def clean_up(self) -> None:
        """Leave nothing behind for the next flow."""
        for side in (self.home, self.away):
            keys: Any = await self.lane.call("KEYS", side.keys.tag + b":*")
            await self.lane.call("UNLINK", *keys)
