"""Each of the client's errors becomes the right one of ours."""

import socket
import ssl

import pytest
import redis.exceptions as client
from redis._parsers.base import BaseParser

from tampu.errors import (
    AccessDenied,
    CommandRefused,
    ConnectionLost,
    QueueFull,
    ServerBusy,
    ServerError,
    ServerUnreachable,
    TlsFailed,
    Verdict,
)
from tampu.server.errors import (
    REFUSALS,
    as_refusal,
    connection_problem,
    refusal_code,
    refusal_error,
    server_errors,
    unreachable,
)

SERVER = "redis://h:6379/0"


def parse_error(line: str) -> Exception:
    """The exception that redis-py makes of an error line."""
    error: Exception = BaseParser.parse_error(line)
    return error


@pytest.mark.parametrize(
    ("line", "kind", "verdict"),
    [
        ("LOADING Redis is loading the dataset in memory", ServerBusy, Verdict.RETRY),
        ("BUSY Redis is busy running a script.", ServerBusy, Verdict.RETRY),
        ("MASTERDOWN Link with MASTER is down", ServerBusy, Verdict.RETRY),
        ("CLUSTERDOWN The cluster is down", ServerBusy, Verdict.RETRY),
        ("TRYAGAIN Multiple keys request during rehashing of slot", ServerBusy, Verdict.RETRY),
        ("MOVED 3999 127.0.0.1:6381", ServerBusy, Verdict.RETRY),
        ("ASK 3999 127.0.0.1:6381", ServerBusy, Verdict.RETRY),
        ("READONLY You can't write against a read only replica.", ServerBusy, Verdict.RETRY),
        ("UNBLOCKED force unblock from blocking operation", ServerBusy, Verdict.RETRY),
        ("NOREPLICAS Not enough good replicas to write.", ServerBusy, Verdict.RETRY),
        ("MISCONF Errors writing to the AOF file: No space left", ServerBusy, Verdict.RETRY),
        ("OOM command not allowed when used memory > 'maxmemory'.", QueueFull, Verdict.RETRY),
        ("QUEUEFULL the queue has reached its max_len", QueueFull, Verdict.RETRY),
        ("NOAUTH Authentication required.", AccessDenied, Verdict.GIVE_UP),
        ("WRONGPASS invalid username-password pair", AccessDenied, Verdict.GIVE_UP),
        ("NOPERM this user has no permissions", AccessDenied, Verdict.GIVE_UP),
        ("DENIED Redis is running in protected mode", AccessDenied, Verdict.GIVE_UP),
        ("WRONGTYPE Operation against a key", CommandRefused, Verdict.GIVE_UP),
        ("NOGROUP No such key", CommandRefused, Verdict.GIVE_UP),
        ("BUSYGROUP Consumer Group name already exists", CommandRefused, Verdict.GIVE_UP),
        ("CROSSSLOT Keys in request don't hash to the same slot", CommandRefused, Verdict.GIVE_UP),
        ("EXECABORT Transaction discarded", CommandRefused, Verdict.GIVE_UP),
        ("ERR syntax error", CommandRefused, Verdict.GIVE_UP),
        ("something nobody has seen before", CommandRefused, Verdict.GIVE_UP),
    ],
)
def test_each_refusal_becomes_its_error(
    line: str, kind: type[ServerError], verdict: Verdict
) -> None:
    for refusal in (parse_error(line), as_refusal(line)):
        error = refusal_error(refusal, SERVER)
        assert type(error) is kind
        assert error.verdict is verdict
        assert "\n" not in str(error)


def test_a_redirection_names_the_node() -> None:
    for code, kind in (("MOVED", client.MovedError), ("ASK", client.AskError)):
        for host in ("127.0.0.1", "::1", "node-3.internal", ""):
            refusal = as_refusal(f"{code} 3999 {host}:6381")
            assert type(refusal) is kind
            assert (refusal_code(refusal), refusal.host, refusal.port) == (code, host, 6381)


@pytest.mark.parametrize("rest", ["", "3999", "x 127.0.0.1:6381", "3999 127.0.0.1", "3999 h:port"])
def test_a_malformed_redirection_is_a_plain_refusal(rest: str) -> None:
    refusal = as_refusal(f"MOVED {rest}")
    assert type(refusal) is client.ResponseError
    assert refusal_code(refusal) == "MOVED"


def test_every_code_of_the_table_is_found_in_an_error_line() -> None:
    for code in REFUSALS.keys() - {"MOVED", "ASK", "MAXCLIENTS"}:
        assert refusal_code(parse_error(f"{code} for some reason")) == code


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "ERR Error running script (call to f_1f): @user_script:22: "
            "@user_script: 22: -OOM command not allowed when used memory > 'maxmemory'.",
            QueueFull,
        ),
        (
            "ERR Error running script (call to f_1f): @user_script:3: "
            "-READONLY You can't write against a read only replica.",
            ServerBusy,
        ),
        (
            "ERR Error running script (call to f_1f): @user_script:3: @user_script: 3: "
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            CommandRefused,
        ),
        ("OOM command not allowed. script: 1f, on @user_script:22.", QueueFull),
    ],
)
def test_the_error_of_a_command_in_a_script_counts(line: str, kind: type[ServerError]) -> None:
    error = refusal_error(parse_error(line), SERVER)
    assert type(error) is kind
    assert isinstance(error, CommandRefused)
    assert error.code != "ERR"


def test_quoted_arguments_are_left_out() -> None:
    line = "ERR unknown command 'XYZ', with args beginning with: 'a-secret' 'payload'"
    assert "a-secret" not in str(refusal_error(parse_error(line), SERVER))


def test_a_long_refusal_is_shortened() -> None:
    assert len(str(refusal_error(parse_error("ERR " + "x" * 10_000), SERVER))) < 400


def with_cause(error: Exception, cause: BaseException) -> Exception:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            with_cause(client.ConnectionError("Error 111"), ConnectionRefusedError(111, "x")),
            ServerUnreachable,
            "Connection refused",
        ),
        (
            with_cause(
                client.ConnectionError("x"), OSError("Multiple: [Errno 111] a, [Errno 111] b")
            ),
            ServerUnreachable,
            "Connection refused",
        ),
        (
            with_cause(
                client.ConnectionError("x"), socket.gaierror(-2, "Name or service not known")
            ),
            ServerUnreachable,
            "Name or service not known",
        ),
        (client.TimeoutError("Timeout connecting"), ServerUnreachable, "in time"),
        (TimeoutError(), ServerUnreachable, "in time"),
        (client.ConnectionError("Connection closed by server."), ServerUnreachable, "closed"),
        (client.ConnectionError("max number of clients reached"), ServerBusy, "max number"),
        (
            with_cause(
                client.ConnectionError("x"), ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] x")
            ),
            TlsFailed,
            "rediss://",
        ),
        (client.AuthenticationError("invalid username-password pair"), AccessDenied, "password"),
        (client.BusyLoadingError("loading", status_code="LOADING"), ServerBusy, "LOADING"),
    ],
)
def test_the_reason_for_a_failed_connect_is_one_sentence(
    error: Exception, kind: type[ServerError], words: str
) -> None:
    ours = unreachable(error, SERVER)
    assert type(ours) is kind
    assert words in str(ours)
    assert SERVER in str(ours)


def test_an_untrusted_certificate_names_the_failed_check() -> None:
    failure = ssl.SSLCertVerificationError(1, "x")
    failure.verify_message = "self-signed certificate"
    assert "self-signed certificate" in str(unreachable(with_cause(OSError(), failure), SERVER))


@pytest.mark.parametrize(("sent", "kind"), [(True, ConnectionLost), (False, ServerUnreachable)])
def test_a_broken_connection_leaves_the_outcome_unknown_only_if_a_call_was_sent(
    sent: bool,  # noqa: FBT001 - a case of the table
    kind: type[ServerError],
) -> None:
    with pytest.raises(kind), server_errors(SERVER, sent=sent):
        raise ConnectionResetError(104, "Connection reset by peer")


def test_an_error_without_text_is_named_by_its_class() -> None:
    assert connection_problem(client.InvalidResponse()) == "InvalidResponse"
