"""How a worker is, at a glance."""

from msgspec import Struct


class Pulse(Struct, frozen=True):
    """Handlers that run now, and how long ago the server took the last sign of life."""

    running: int
    silent_s: float

    def joined(self, other: "Pulse") -> "Pulse":
        """Both as one: all that runs, and the longer silence."""
        return Pulse(self.running + other.running, max(self.silent_s, other.silent_s))
