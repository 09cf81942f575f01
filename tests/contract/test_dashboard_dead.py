"""Dead letters on the dashboard: replayed, discarded, edited and replayed, over a real server."""

import json

import pytest

from tampu.dashboard import Access
from tampu.queue import Queue
from tests.dashboards import Visit, act, bury
from tests.servers import RunningServer


async def test_a_dead_letter_is_replayed_once_and_discarded_once(
    visit: Visit, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        first, second = await bury(running.url, queue, {"n": 1}, {"n": 2})
        for sentence in ("The job is on the queue again.", "There is nothing to replay any more."):
            answer = await act(client, "/replay-letter", queue="emails", dead=first)
            assert answer.json()["sentence"] == sentence
        for sentence in ("The dead letter is discarded.", "It is no dead letter any more."):
            answer = await act(client, "/discard-letter", queue="emails", dead=second)
            assert answer.json()["sentence"] == sentence
        counts = await queue.counts()
        assert (counts.waiting, counts.dead) == (1, 0)


async def test_a_letter_is_edited_and_replayed_in_one_step(
    visit: Visit, running: RunningServer
) -> None:
    client = visit()
    payload = {"to": "adda", "n": 1, "password": "hunter2", "list": [{"token": "t"}, 1.5, None]}
    async with Queue("emails", running.url) as queue:
        (dead_id,) = await bury(running.url, queue, payload)
        letter = await queue.dead.get(dead_id)
        assert letter is not None
        page = (await client.get(f"/edit?queue=emails&dead={dead_id}")).text
        assert "hunter2" not in page
        shown = {**payload, "to": "ada", "password": "•••", "list": [{"token": "•••"}, 1.5, None]}
        sent = {"queue": "emails", "dead": dead_id, "data": json.dumps(shown)}
        for status in (200, 404, 404):  # a repeated form does not add it again
            assert (await act(client, "/replay-edited", **sent)).status_code == status
        counts = await queue.counts()
        assert (counts.waiting, counts.dead) == (1, 0)
        info = await queue.job(letter.job_id or "").info()
        assert (info.name, info.data, info.attempt) == ("send", {**payload, "to": "ada"}, 0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": 1, "a": 2}', "appears twice"),
        ('{"moved": "•••"}', "cannot be moved"),
        ("[" * 50_000, "nested too deep"),
        ('{"n": 99999999999999999999999}', "cannot be the payload"),
        ('"' + "x" * 950_000 + '"', "cannot be the payload"),
    ],
)
async def test_a_payload_that_cannot_be_is_refused_and_the_letter_stays(
    visit: Visit, running: RunningServer, text: str, sentence: str
) -> None:
    async with Queue("emails", running.url) as queue:
        (dead_id,) = await bury(running.url, queue, {"password": "hunter2"})
        answer = await act(visit(), "/replay-edited", queue="emails", dead=dead_id, data=text)
        assert (answer.status_code, sentence in answer.json()["sentence"]) == (400, True)
        assert "hunter2" not in answer.text
        assert (await queue.counts()).dead == 1


async def test_a_payload_that_json_cannot_hold_is_not_edited(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        (dead_id,) = await bury(running.url, queue, {"raw": b"\x00\xff"})
    client = visit()
    assert (await client.get(f"/edit?queue=emails&dead={dead_id}")).status_code == 400
    assert "Edit and replay" not in (await client.get(f"/job?queue=emails&dead={dead_id}")).text


async def test_editing_needs_the_right_to_replay_as_well(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        (dead_id,) = await bury(running.url, queue, {"n": 1})
        for actions in (["edit"], ["replay"]):
            client = visit(access=Access.of({"emails": actions}))
            page = (await client.get(f"/job?queue=emails&dead={dead_id}")).text
            assert "Edit and replay" not in page
            assert ("Replay" in page) is (actions == ["replay"])
            sent = {"queue": "emails", "dead": dead_id, "data": "{}"}
            assert (await act(client, "/replay-edited", **sent)).status_code == 403
        assert (await queue.counts()).dead == 1
