"""What tests of actions on many jobs share: planning, confirming and following one."""

from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from tampu.admin.audit import BulkRecord
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.wire.audit import BulkProgress, bulk_key
from tests.dashboards import SAME_ORIGIN
from tests.waiting import wait_until


async def send_form(client: httpx.AsyncClient, path: str, *fields: tuple[str, str]) -> str:
    """Send a form as a browser without scripts does; returns where it leads."""
    headers = SAME_ORIGIN | {"content-type": "application/x-www-form-urlencoded"}
    answer = await client.post(path, content=urlencode(fields), headers=headers)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def plan(client: httpx.AsyncClient, **fields: str) -> str:
    """Send a filter; returns the id of the plan."""
    given = {"queue": "emails", **fields}
    place = await send_form(client, "/plan-bulk", *given.items())
    return _id_in(place)


async def plan_selected(client: httpx.AsyncClient, *rows: str, **fields: str) -> str:
    """Send ticked rows; returns the id of the plan."""
    given = {"queue": "emails", **fields}
    ticked = [("row", row) for row in rows]
    place = await send_form(client, "/plan-selected", *given.items(), *ticked)
    return _id_in(place)


def _id_in(place: str) -> str:
    (bulk_id,) = parse_qs(urlsplit(place).query)["id"]
    return bulk_id


async def read(server: Server, bulk_id: str) -> BulkProgress:
    """How far it is."""
    async with await Lane.open(server, bulk_key(bulk_id)) as lane:
        progress = await BulkRecord(lane, bulk_id).read()
        assert progress is not None
        return progress


async def until_under_way(server: Server, bulk_id: str) -> None:
    """Wait until it has been done to some jobs."""

    async def is_under_way() -> bool:
        return (await read(server, bulk_id)).changed > 0

    await wait_until(is_under_way, within=60, sentence="the action is under way")


async def until_ended(server: Server, bulk_id: str) -> BulkProgress:
    """Wait until it does not run any more."""

    async def has_ended() -> bool:
        return (await read(server, bulk_id)).state not in {"prepared", "running"}

    await wait_until(has_ended, within=60, sentence="the action has ended")
    return await read(server, bulk_id)


async def confirm(client: httpx.AsyncClient, server: Server, bulk_id: str) -> BulkProgress:
    """Start a plan and wait for its end."""
    place = await send_form(client, "/start-bulk", ("id", bulk_id))
    assert place == f"bulk?id={bulk_id}"
    return await until_ended(server, bulk_id)
