"""tampu: a job queue and scheduler on Redis or Valkey Streams with MessagePack."""

from tampu._version import __version__
from tampu.errors import (
    AccessDenied,
    Closed,
    CommandRefused,
    ConnectionLost,
    DecodeError,
    EmbeddedFailed,
    EncodeError,
    MissingExtra,
    OptionError,
    QueueFull,
    ServerBusy,
    ServerError,
    ServerTooOld,
    ServerUnreachable,
    TampuError,
    TlsFailed,
    Verdict,
)

__all__ = [
    "AccessDenied",
    "Closed",
    "CommandRefused",
    "ConnectionLost",
    "DecodeError",
    "EmbeddedFailed",
    "EncodeError",
    "MissingExtra",
    "OptionError",
    "QueueFull",
    "ServerBusy",
    "ServerError",
    "ServerTooOld",
    "ServerUnreachable",
    "TampuError",
    "TlsFailed",
    "Verdict",
    "__version__",
]
