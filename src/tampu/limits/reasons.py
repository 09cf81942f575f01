"""Why a job waits."""

from datetime import datetime

from msgspec import Struct

from tampu.util.options import Word


class WaitsFor(Word):
    """What a job waits for."""

    NOTHING = "nothing"  # it runs, has ended, or is not known
    WORKER = "worker"  # there is none
    SLOT = "slot"  # workers are busy
    TURN = "turn"  # other lines come before its own, or other jobs of its line
    RESUME = "resume"  # the queue, its task or its key is paused
    LIMIT = "limit"  # jobs that run hold all of it
    RATE = "rate"
    CLOSED = "closed"  # a handler has closed a limit
    BREAKER = "breaker"  # too many attempts of its task failed
    ORDER = "order"  # an earlier job of its key
    STEP = "step"  # an earlier step of its chain
    TIME = "time"  # it is delayed
    RETRY = "retry"  # the time of its next attempt
    REPLAY = "replay"  # it is dead


class Why(Struct, frozen=True, kw_only=True):
    """Why a job is not running yet. `holders` are ids of jobs that hold what it waits for."""

    job_id: str
    waits_for: WaitsFor
    sentence: str
    until: datetime | None = None
    holders: list[str] = []
    limit: str | None = None
    value: str | None = None  # of the limit, if it counts each value apart

    def __str__(self) -> str:
        return self.sentence
