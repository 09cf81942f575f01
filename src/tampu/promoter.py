"""A promoter without a worker, as users have it."""

from tampu.lone import LoneService
from tampu.services.promoter import Promoter as PromoterService
from tampu.wire.lock import HolderKind


class Promoter(LoneService):
    """Moves the delayed jobs of one queue to those that wait, when they are due; runs none.

    For queues whose workers do not (`promote=False`). Of all that promote on a queue, workers
    among them, one leads. `await promoter.run()` works until `stop()`; `async with promoter:` works
    inside the block. A promoter is used once.
    """

    kind = HolderKind.PROMOTER
    service = PromoterService
