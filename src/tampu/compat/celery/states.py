"""The states of tasks, as `AsyncResult.state` and `after_return` give them."""

from typing import Final

__all__ = [
    "ALL_STATES",
    "EXCEPTION_STATES",
    "FAILURE",
    "IGNORED",
    "PENDING",
    "PROPAGATE_STATES",
    "READY_STATES",
    "RECEIVED",
    "REJECTED",
    "RETRY",
    "REVOKED",
    "STARTED",
    "SUCCESS",
    "UNREADY_STATES",
]

PENDING: Final = "PENDING"
RECEIVED: Final = "RECEIVED"
STARTED: Final = "STARTED"
SUCCESS: Final = "SUCCESS"
FAILURE: Final = "FAILURE"
REVOKED: Final = "REVOKED"
REJECTED: Final = "REJECTED"
RETRY: Final = "RETRY"
IGNORED: Final = "IGNORED"

READY_STATES: Final = frozenset((SUCCESS, FAILURE, REVOKED))
UNREADY_STATES: Final = frozenset((PENDING, RECEIVED, STARTED, REJECTED, RETRY))
EXCEPTION_STATES: Final = frozenset((RETRY, FAILURE, REVOKED))
PROPAGATE_STATES: Final = frozenset((FAILURE, REVOKED))
ALL_STATES: Final = frozenset((PENDING, RECEIVED, STARTED, SUCCESS, FAILURE, RETRY, REVOKED))
