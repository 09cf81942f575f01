"""The bytes of alerts: their states on the server, and what is told when one fires or resolves."""

from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import OptionError
from tampu.util.options import Word
from tampu.wire.msgpack import decode_as
from tampu.wire.names import check_queue_name

FORMAT: Final = 1
NOTIFIER_FIELD: Final = b"n"
NOTICE_FIELD: Final = b"d"
_BEGIN, _END = b"{chasqui:", b"}:tampu:alerts"
EVERY_ALERTS: Final = b"%b*%b" % (_BEGIN, _END)
"""A SCAN pattern that matches the alerts of every queue."""


class AlertKind(Word):
    """What an alert is about."""

    OLDEST = "oldest"
    NO_WORKERS = "no-workers"
    DEAD_GROWING = "dead-growing"
    FAILURE_RATE = "failure-rate"
    SCHEDULE_MISSED = "schedule-missed"
    SERVER_MEMORY = "server-memory"
    EVICTION = "eviction"
    LOOP_LAG = "loop-lag"


class AlertPhase(Word):
    """Where an alert is."""

    QUIET = "quiet"  # its condition does not hold, and it has not fired lately
    PENDING = "pending"  # its condition holds, but not for long enough
    FIRED = "fired"
    RESOLVED = "resolved"


class StoredAlert(Struct, frozen=True, array_like=True):
    """The state of an alert as a queue keeps it. Times are ms of the server's clock, 0: none."""

    kind: AlertKind
    since_ms: int = 0  # when the condition began to hold
    fired_ms: int = 0  # when it fired last
    resolved_ms: int = 0  # when it resolved after that
    clear_ms: int = 0  # it has fired, and the condition has not held since then
    sentence: str = ""  # of the last change
    value: float = 0.0
    limit: float = 0.0
    format: int = FORMAT

    @property
    def phase(self) -> AlertPhase:
        """Where the alert is."""
        if self.fired_ms and not self.resolved_ms:
            return AlertPhase.FIRED
        if self.since_ms:
            return AlertPhase.PENDING
        return AlertPhase.RESOLVED if self.resolved_ms else AlertPhase.QUIET


class AlertNotice(Struct, frozen=True, kw_only=True):
    """An alert has fired or resolved.

    `id` is the same each time that a notice is delivered, and no other notice has it. `value` and
    `limit` are seconds, numbers of jobs, or shares from 0 to 1.
    """

    id: str
    key: str
    kind: AlertKind
    queue: str
    state: AlertPhase  # FIRED or RESOLVED
    sentence: str
    value: float
    limit: float
    since: datetime  # when the condition began to hold
    at: datetime  # when the alert fired or resolved


SAMPLE_NOTICE: Final = AlertNotice(
    id="alert:emails:oldest:0:fired",
    key="oldest",
    kind=AlertKind.OLDEST,
    queue="emails",
    state=AlertPhase.FIRED,
    sentence="",
    value=0.0,
    limit=0.0,
    since=datetime.fromtimestamp(0, UTC),
    at=datetime.fromtimestamp(0, UTC),
)
"""Shows what a task that is told of alerts must take."""
_encode: Final = Encoder().encode
_state: Final = Decoder(StoredAlert)
_notice: Final = Decoder(AlertNotice)


def encode_alert(value: StoredAlert | AlertNotice) -> bytes:
    """A state or a notice as the server keeps it."""
    return _encode(value)


def decode_state(data: bytes) -> StoredAlert:
    """The state of an alert."""
    return decode_as(_state, data, what="alert", expected="a list of nine values")


def decode_notice(data: bytes) -> AlertNotice:
    """A notice that waits to be delivered."""
    return decode_as(_notice, data, what="notice", expected="a map of the notice's fields")


def notice_arguments(notice: AlertNotice) -> dict[str, object]:
    """The data of a job that tells of an alert: one argument for a task."""
    return {"alert": msgspec.to_builtins(notice)}


def notice_json(notice: AlertNotice) -> bytes:
    """A notice as JSON, for commands and webhooks."""
    return msgspec.json.encode(notice)


def alerts_queue_of(key: bytes) -> str | None:
    """The queue whose alerts a key holds; None if its name is invalid."""
    try:
        return check_queue_name(key.removeprefix(_BEGIN).removesuffix(_END).decode())
    except (UnicodeDecodeError, OptionError):
        return None
