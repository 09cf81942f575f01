"""What `tampu inspect` does."""

from tampu.admin.queues import Overview, look_over, queue_names
from tampu.cli.acts.desk import desk_for
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.cli.show.shapes import overview_shape
from tampu.cli.show.tables import queue_page, queues_table
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys


async def inspect(shared: Shared, queue: str | None, *, group: str) -> None:
    """Show one queue in full, or all of them in a table."""
    if queue is not None:
        async with desk_for(shared, queue) as desk:
            overview = await look_over(desk.lane, desk.keys, group)
            shape = {"server": desk.server.name, "queues": [overview_shape(overview)]}
        Screen(shared).show(shape, lambda: queue_page(overview))
        return
    async with await connect(shared.url) as server:
        found = await look_over_all(server, group)
    shape = {"server": server.name, "queues": [overview_shape(each) for each in found]}
    Screen(shared).show(shape, lambda: queues_table(found))


async def look_over_all(server: Server, group: str) -> list[Overview]:
    """Every queue of a server; each has its own node in a cluster."""
    found: list[Overview] = []
    for name in await queue_names(server):
        keys = QueueKeys(name)
        async with await Lane.open(server, keys.stream) as lane:
            found.append(await look_over(lane, keys, group))
    return found
