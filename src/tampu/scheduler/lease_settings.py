"""How long leases last, and how often they are renewed; checked once, when they are made."""

from dataclasses import dataclass
from typing import TypedDict

from tampu.duration import Duration, to_positive_ms
from tampu.errors import OptionError
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.server.lanes import Lanes
from tampu.wire.guard_keys import DEFAULT_GUARD_PREFIX
from tampu.wire.keys import check_prefix
from tampu.wire.task_keys import DEFAULT_TASK_PREFIX


class LeaseOptions(TypedDict, total=False):
    """What may be said of whoever gives out leases, besides where its server is."""

    lease: Duration
    renew_every: Duration
    timeout: Duration
    prefix: str


class GuardOptions(LeaseOptions, total=False):
    """The same of a guard."""

    remember: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """For how long a run is ours at a time."""

    lease: Duration = "30s"  # how long one lasts after it was last renewed
    renew_every: Duration = "10s"
    timeout: Duration = "5s"  # how long one call to the server may take
    prefix: str = DEFAULT_TASK_PREFIX  # of its keys

    def __post_init__(self) -> None:
        lease_ms = to_positive_ms("lease", self.lease)
        for option in ("renew_every", "timeout"):
            given = getattr(self, option)
            if to_positive_ms(option, given) >= lease_ms:
                raise OptionError(option, given, f"must be shorter than lease={self.lease!r}")
        check_prefix(self.prefix)

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts."""
        return to_positive_ms("lease", self.lease)

    @property
    def renew_every_s(self) -> float:
        """How often it is renewed."""
        return to_positive_ms("renew_every", self.renew_every) / 1000

    def lanes(self, url: Target, credentials: CredentialCallback | None) -> Lanes:
        """The way to the server, on which no call takes longer than its time."""
        timeout_s = to_positive_ms("timeout", self.timeout) / 1000
        return Lanes.within(timeout_s, url, credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings(LeaseSettings):
    """The same of a guard."""

    prefix: str = DEFAULT_GUARD_PREFIX
    remember: Duration = "24h"  # how long an occurrence that was run is not to be had again

    def __post_init__(self) -> None:
        LeaseSettings.__post_init__(self)  # `super()` does not find its way through slots
        to_positive_ms("remember", self.remember)

    @property
    def remember_ms(self) -> int:
        """How long an occurrence that was run is not to be had again."""
        return to_positive_ms("remember", self.remember)
