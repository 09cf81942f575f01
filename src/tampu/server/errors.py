"""The border where the client's errors become tampu's own."""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

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
    UnknownLimit,
)
from tampu.server.redis_py import is_client_limit, is_hang_up


class ScriptUnknown(CommandRefused):
    """The server does not know a script by its digest; `script.py` then loads it."""

    maybe_done = False  # the call was sent before, and may have been carried out then


# What each refusal means. For a code that is not in the table, repeating the call does not help.
# Lost connections are no refusals: they alone leave the outcome unknown.
REFUSALS: dict[str, type[CommandRefused | AccessDenied]] = {
    "LOADING": ServerBusy,  # reading its data after a start
    "BUSY": ServerBusy,  # a script runs for too long
    "MASTERDOWN": ServerBusy,  # a replica without its master
    "CLUSTERDOWN": ServerBusy,  # a slot without a node, or no majority
    "TRYAGAIN": ServerBusy,  # a slot that is moving to another node
    "MOVED": ServerBusy,  # lanes handle these four themselves; a caller sees one only if it
    "ASK": ServerBusy,  # lasted until the time limit of the call
    "READONLY": ServerBusy,
    "UNBLOCKED": ServerBusy,
    "NOREPLICAS": ServerBusy,  # min-replicas-to-write is not met
    "MISCONF": ServerBusy,  # the last save or append failed: a full disk, mostly
    "MAXCLIENTS": ServerBusy,  # no room for another connection
    "OOM": QueueFull,  # maxmemory
    "QUEUEFULL": QueueFull,  # max_len of the queue, from the add script
    "NOLIMIT": UnknownLimit,  # from the add and upsert scripts
    "NOSCRIPT": ScriptUnknown,
    "NOAUTH": AccessDenied,
    "WRONGPASS": AccessDenied,
    "NOPERM": AccessDenied,
    "DENIED": AccessDenied,  # protected mode
}

# The server answered with an error: the connection is fine, and later replies stay in step.
REPLY_ERRORS = (client.ResponseError, client.BusyLoadingError, client.AuthenticationError)
# The connection broke or was never made.
CONNECTION_ERRORS = (client.ConnectionError, client.TimeoutError, client.InvalidResponse, OSError)

_TARGET = re.compile(r"\d+ \S*:\d+")  # slot, host and port
_REDIRECTIONS = {"MOVED": client.MovedError, "ASK": client.AskError}

# From the add script, for a call that is too old for it to know whether it was carried out.
FORGOTTEN = "FORGOTTEN"

TOO_SLOW = "it did not answer in time"
HUNG_UP = "it closed the connection"

_CODE = re.compile(r"-?([A-Z][A-Z0-9]{2,})\b")
# Redis 6.2 wraps errors of commands in a script: "... @user_script: 3: -OOM command ..."
_INSIDE_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z][A-Z0-9]{2,} .*)", re.DOTALL)
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_LONGEST_PROBLEM = 200


def as_refusal(text: str) -> Exception:
    """The error line of a server as one of redis-py's exceptions."""
    code, _, rest = text.partition(" ")
    kind = _REDIRECTIONS.get(code)
    if kind is not None and _TARGET.fullmatch(rest):
        return kind(rest, status_code=code)
    return client.ResponseError(text)


def refusal_code(error: Exception) -> str:
    """The first word of a refusal, such as LOADING or NOSCRIPT."""
    return _code_and_text(error)[0]


def refusal_error(error: Exception, server: str) -> ServerError:
    """A refusal as one of our errors."""
    code, text = _code_and_text(error)
    if code == FORGOTTEN:
        return ConnectionLost(server, text)
    kind = REFUSALS.get(code, CommandRefused)
    if issubclass(kind, AccessDenied) or isinstance(error, client.AuthenticationError):
        return AccessDenied(server, text)
    return kind(server, code, text)


def unreachable(error: BaseException, server: str) -> ServerError:
    """The reason why no connection was made, as one of our errors; nothing was sent."""
    if isinstance(error, REPLY_ERRORS):
        return refusal_error(error, server)
    if is_client_limit(error):
        return ServerBusy(server, "MAXCLIENTS", str(error))
    for cause in _chain(error):
        if isinstance(cause, client.AuthenticationError | client.NoPermissionError):
            return refusal_error(cause, server)
        if isinstance(cause, ssl.SSLError):
            return TlsFailed(server, _tls_problem(cause))
    return ServerUnreachable(server, connection_problem(error))


def connection_problem(error: BaseException) -> str:
    """Why a connection broke or was never made, in a few words without internals."""
    for cause in _chain(error):
        if isinstance(cause, OSError) and (problem := _system_problem(cause)):
            return problem
    if isinstance(error, client.TimeoutError | TimeoutError):
        return TOO_SLOW
    if is_hang_up(error):
        return HUNG_UP
    return str(error).rstrip(".")[:_LONGEST_PROBLEM] or type(error).__name__


def bare_cause(error: Exception) -> BaseException:
    """The first cause of an error, in its own words and without the client's traceback.

    What the client did before tells a user nothing, and takes a hundred lines to say it.
    """
    found: BaseException = error
    for found in _chain(error):
        if isinstance(found, OSError):
            break
    return copy(found)


@contextmanager
def server_errors(server: str, *, sent: bool) -> Iterator[None]:
    """Turn the client's errors into ours. `sent` says whether a call was in flight."""
    try:
        yield
    except REPLY_ERRORS as error:
        raise refusal_error(error, server) from error
    except CONNECTION_ERRORS as error:
        if sent:
            raise ConnectionLost(server, connection_problem(error)) from bare_cause(error)
        raise unreachable(error, server) from bare_cause(error)


def _code_and_text(error: Exception) -> tuple[str, str]:
    text = str(error)
    inside = _INSIDE_SCRIPT.search(text)
    if inside:
        text = inside.group(1)
    found = _CODE.match(text)
    code = getattr(error, "status_code", None)
    if code is None or inside:
        code = found.group(1) if found else "ERR"
    # The server quotes an unknown command with its arguments, which may be payloads.
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
    # For a host with several addresses, asyncio raises one error whose text lists theirs.
    number = error.errno or next(iter(map(int, _ERRNO.findall(str(error)))), None)
    return os.strerror(number) if number else None


def _tls_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return (getattr(error, "reason", None) or "the handshake failed").replace("_", " ").lower()
