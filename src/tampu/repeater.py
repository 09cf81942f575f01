"""A repeater without a worker, as users have it."""

from tampu.lone import LoneService
from tampu.services.repeater import Repeater as RepeaterService
from tampu.wire.lock import HolderKind


class Repeater(LoneService):
    """Fires the schedules of one queue when they are due; runs no job.

    For queues whose workers do not (`schedule=False`). Of all that fire on a queue, workers among
    them, one leads. `await repeater.run()` works until `stop()`; `async with repeater:` works
    inside the block. A repeater is used once.
    """

    kind = HolderKind.SCHEDULER
    service = RepeaterService
