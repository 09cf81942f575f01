"""The one border where the client's errors become ours."""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import redis.exceptions as client

from tampu.errors import (
    AccessDenied,
    CommandRefused,
    ConnectionLost,
    QueueFull,
    ServerBusy,
    ServerError,
    ServerUnreachable,
    TlsFailed,
)


class ScriptUnknown(CommandRefused):
    """The server does not know a script by its digest; it never gets past `script.py`."""

    unknown = False  # an earlier sending of the same call may have been carried out


# What each refusal means. A code that is not here will not get better by itself: give up.
# Lost connections are not here: they are the one thing whose outcome is unknown.
REFUSALS: dict[str, type[CommandRefused | AccessDenied]] = {
    "LOADING": ServerBusy,  # reading its data after a start
    "BUSY": ServerBusy,  # a script is running for too long
    "MASTERDOWN": ServerBusy,  # a replica without its master
    "CLUSTERDOWN": ServerBusy,  # a slot without a node, or no majority
    "TRYAGAIN": ServerBusy,  # a slot on its way to another node
    "MOVED": ServerBusy,  # lanes follow these four by themselves; who sees them
    "ASK": ServerBusy,  # was moved about for longer than the call's time limit
    "READONLY": ServerBusy,
    "UNBLOCKED": ServerBusy,
    "NOREPLICAS": ServerBusy,  # min-replicas-to-write is not met
    "MISCONF": ServerBusy,  # the last save or append failed: a full disk, mostly
    "MAXCLIENTS": ServerBusy,  # no place for another connection
    "OOM": QueueFull,  # maxmemory
    "QUEUEFULL": QueueFull,  # the queue's own length limit, from our add script
    "NOSCRIPT": ScriptUnknown,
    "NOAUTH": AccessDenied,
    "WRONGPASS": AccessDenied,
    "NOPERM": AccessDenied,
    "DENIED": AccessDenied,  # protected mode
}

# What the server said, as opposed to what became of the link: the replies stay in step.
REPLIES = (client.ResponseError, client.BusyLoadingError, client.AuthenticationError)
LINK_ERRORS = (client.ConnectionError, client.TimeoutError, client.InvalidResponse, OSError)

_PLACE = re.compile(r"\d+ \S*:\d+")  # slot, host and port
_REDIRECTIONS = {"MOVED": client.MovedError, "ASK": client.AskError}

# Said by our add script of a call that is too old to be told whether it was carried out.
FORGOTTEN = "FORGOTTEN"

TOO_SLOW = "it did not answer in time"
HUNG_UP = "it closed the connection"

_CODE = re.compile(r"-?([A-Z][A-Z0-9]{2,})\b")
# Redis 6.2 wraps what a script's command was answered: "... @user_script: 3: -OOM command ..."
_INSIDE_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z][A-Z0-9]{2,} .*)", re.DOTALL)
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_LONGEST_PROBLEM = 200


def as_refusal(text: str) -> Exception:
    """A server's refusal as an exception, of those that redis-py has for it."""
    code, _, rest = text.partition(" ")
    kind = _REDIRECTIONS.get(code)
    if kind is not None and _PLACE.fullmatch(rest):
        return kind(rest, status_code=code)
    return client.ResponseError(text)


def refusal_code(error: Exception) -> str:
    """The word a server's refusal starts with, such as LOADING or NOSCRIPT."""
    return _code_and_text(error)[0]


def refusal_error(error: Exception, server: str) -> ServerError:
    """What a refusal means, as one of our errors."""
    code, text = _code_and_text(error)
    if code == FORGOTTEN:
        return ConnectionLost(server, text)
    kind = REFUSALS.get(code, CommandRefused)
    if issubclass(kind, AccessDenied) or isinstance(error, client.AuthenticationError):
        return AccessDenied(server, text)
    return kind(server, code, text)


def unreachable(error: BaseException, server: str) -> ServerError:
    """Why no connection was made, as one of our errors; nothing was sent."""
    if isinstance(error, REPLIES):
        return refusal_error(error, server)
    if str(error).startswith("max number of clients"):
        return ServerBusy(server, "MAXCLIENTS", str(error))
    for link in _chain(error):
        if isinstance(link, client.AuthenticationError | client.NoPermissionError):
            return refusal_error(link, server)
        if isinstance(link, ssl.SSLError):
            return TlsFailed(server, _tls_problem(link))
    return ServerUnreachable(server, link_problem(error))


def link_problem(error: BaseException) -> str:
    """Why a link broke or was never made, in a few words without internals."""
    for link in _chain(error):
        if isinstance(link, OSError) and (problem := _system_problem(link)):
            return problem
    if isinstance(error, client.TimeoutError | TimeoutError):
        return TOO_SLOW
    if "lost" in str(error) or "closed" in str(error):
        return HUNG_UP
    return str(error).rstrip(".")[:_LONGEST_PROBLEM] or type(error).__name__


@contextmanager
def server_errors(server: str, *, sent: bool) -> Iterator[None]:
    """Turn the client's errors into ours. `sent` says whether a call was in flight."""
    try:
        yield
    except REPLIES as error:
        raise refusal_error(error, server) from error
    except LINK_ERRORS as error:
        if sent:
            raise ConnectionLost(server, link_problem(error)) from error
        raise unreachable(error, server) from error


def _code_and_text(error: Exception) -> tuple[str, str]:
    text = str(error)
    inside = _INSIDE_SCRIPT.search(text)
    if inside:
        text = inside.group(1)
    found = _CODE.match(text)
    code = getattr(error, "status_code", None)
    if code is None or inside:
        code = found.group(1) if found else "ERR"
    # An unknown command is quoted with its arguments, which may be payloads.
    shown = text.removeprefix(code).strip().partition(", with args beginning")[0]
    return code, shown[:_LONGEST_PROBLEM]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _system_problem(error: OSError) -> str | None:
    if isinstance(error, ssl.SSLError):
        return _tls_problem(error)
    if isinstance(error, socket.gaierror):
        return error.strerror
    # A host with several addresses fails with one text that lists the error of each.
    number = error.errno or next(iter(map(int, _ERRNO.findall(str(error)))), None)
    return os.strerror(number) if number else None


def _tls_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return (getattr(error, "reason", None) or "no agreement").replace("_", " ").lower()
