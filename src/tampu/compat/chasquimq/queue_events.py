"""Events, under the name that chasquimq has for them."""

from tampu.compat.adapter.events import QueueEvent, QueueEvents

__all__ = ["QueueEvent", "QueueEvents"]
