"""What tests of alerts share: a queue without workers, and an alert that can be switched."""

from tampu import Alert, Queue
from tampu.admin.alerts import active_alerts
from tampu.admin.queues import purge_jobs
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.contract.alert_process import WATCHED
from tests.contract.workers import SOON, Calls
from tests.servers import RunningServer
from tests.waiting import wait_until

SLOW = QueueKeys(WATCHED)
NO_WORKERS = Alert.no_workers(WATCHED, for_=0)


class Switch:
    """Lets the alert fire and resolve: a queue that has jobs, or none."""

    def __init__(self, running: RunningServer, lane: Lane) -> None:
        self._url, self._lane = running.url, lane

    async def on(self) -> None:
        async with Queue(WATCHED, self._url) as queue:
            await queue.add("wait", {"password": "hunter2"})

    async def off(self) -> None:
        await purge_jobs(self._lane, SLOW)

    async def until(self, *, fired: int) -> None:
        """Return when so many alerts are active."""

        async def is_so() -> bool:
            return len(await active_alerts(self._lane, SLOW)) == fired

        await wait_until(is_so, within=SOON, sentence=f"{fired} alerts are active")


def states(calls: Calls) -> list[str]:
    return [each["alert"]["state"] for each in calls.data]
