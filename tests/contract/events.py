"""What tests of events share."""

import pytest

from tampu.wire.event import EventFields, encode_active
from tampu.wire.keys import QueueKeys

KEY = QueueKeys("events").events
SOON = 60.0


def active_event(number: int) -> EventFields:
    """The event of a job with this number as its id."""
    return encode_active(str(number), "1794725043642", "job", 1)


def log_lines(caplog: pytest.LogCaptureFixture, logger: str = "tampu.events") -> list[str]:
    """What a module has logged."""
    return [record.message for record in caplog.records if record.name == logger]
