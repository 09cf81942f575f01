"""Which requests pass, whatever page they are for."""

from collections.abc import Mapping
from typing import Any

import pytest

from tampu.dashboard.security import (
    CSP,
    Message,
    Receive,
    RequestGuard,
    Send,
    check_allowed_hosts,
    clamp,
    is_allowed_host,
    judge,
)
from tampu.errors import OptionError

NAMES = frozenset({"jobs.example"})


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("localhost:8321", True),
        ("LOCALHOST:8321", True),
        ("localhost.", True),
        ("127.0.0.1:8321", True),
        ("10.1.2.3", True),
        ("[::1]:8321", True),
        ("jobs.example", True),
        ("Jobs.Example:443", True),
        ("evil.example", False),
        ("jobs.example.evil.example", False),
        ("evil-jobs.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil@localhost", False),
        ("localhost/evil", False),
        ("localhost:port", False),
        ("2130706433", False),
        ("", False),
    ],
)
def test_only_localhost_addresses_and_allowed_names_are_answered(
    host: str, *, allowed: bool
) -> None:
    assert is_allowed_host(host, NAMES) is allowed
    refusal = judge("GET", [(b"host", host.encode())], NAMES)
    assert (refusal is None) is allowed
    assert refusal is None or refusal.status == 421


def test_a_request_without_a_host_or_with_two_is_refused() -> None:
    assert judge("GET", [], NAMES) is not None
    assert judge("GET", [(b"host", b"localhost"), (b"host", b"localhost")], NAMES) is not None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get"])
def test_only_get_head_and_post_are_methods(method: str) -> None:
    refusal = judge(method, [(b"host", b"localhost")], NAMES)
    assert refusal is not None
    assert refusal.status == 405


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_needs_no_origin(method: str) -> None:
    headers = [(b"host", b"localhost"), (b"sec-fetch-site", b"cross-site")]
    assert judge(method, headers, NAMES) is None


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": ""}, False),
        # It decides alone: an Origin that looks right does not help.
        ({"sec-fetch-site": "cross-site", "origin": "http://jobs.example"}, False),
        ({"sec-fetch-site": "cross-site", "authorization": "Bearer x"}, False),
        ({"origin": "http://jobs.example"}, True),
        ({"origin": "https://jobs.example"}, True),
        ({"origin": "https://jobs.example:443"}, True),
        ({"origin": "http://jobs.example:8080"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://evil.example/jobs.example"}, False),
        ({"origin": "http://jobs.example.evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({"origin": "file://"}, False),
        ({"origin": "http://evil.example", "authorization": "Bearer x"}, False),
        ({"authorization": "Bearer x"}, True),
        ({"authorization": "bearer x"}, True),
        ({"authorization": "Bearer "}, False),
        ({"authorization": "Basic eDp5"}, False),
        ({}, False),
    ],
)
def test_changes_come_from_the_same_origin_or_with_a_bearer_token(
    headers: Mapping[str, str], *, allowed: bool
) -> None:
    given = [(b"host", b"jobs.example")]
    given += [(name.encode(), value.encode()) for name, value in headers.items()]
    refusal = judge("POST", given, NAMES)
    assert (refusal is None) is allowed
    assert refusal is None or refusal.status == 403


def test_two_origins_are_as_bad_as_a_wrong_one() -> None:
    same = (b"origin", b"http://jobs.example")
    assert judge("POST", [(b"host", b"jobs.example"), same, same], NAMES) is not None
    site = (b"sec-fetch-site", b"same-origin")
    assert judge("POST", [(b"host", b"jobs.example"), site, site], NAMES) is not None


@pytest.mark.parametrize("name", ["*", "*.example", "jobs.example:443", "http://jobs.example", ""])
def test_an_allowed_host_is_a_plain_name(name: str) -> None:
    with pytest.raises(OptionError, match="allowed_hosts"):
        check_allowed_hosts([name])


def test_one_allowed_host_must_come_in_a_list() -> None:
    with pytest.raises(OptionError, match="expected a list"):
        check_allowed_hosts("jobs.example")


@pytest.mark.parametrize(("given", "clamped"), [(-5, 1), (1, 1), (50, 50), (10**30, 100)])
def test_numbers_are_clamped(given: int, clamped: int) -> None:
    assert clamp(given, 1, 100) == clamped


# --- the guard as a whole -----------------------------------------------------------------------


async def call(
    scope: dict[str, Any], headers: Mapping[str, str] = {"host": "localhost"}
) -> list[dict[str, Any]]:
    """What the guard sends around an app that answers and sets a header of its own."""
    sent: list[dict[str, Any]] = []

    async def send(message: Message) -> None:
        sent.append(dict(message))

    async def receive() -> Message:
        raise AssertionError("nothing is to be received")

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        del scope, receive
        own = [(b"x-own", b"1"), (b"X-Frame-Options", b"ALLOWALL")]
        await send({"type": "http.response.start", "status": 200, "headers": own})
        await send({"type": "http.response.body", "body": b"of the app"})

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    whole = {"type": "http", "method": "GET", "path": "/", "headers": raw, **scope}
    await RequestGuard(app)(whole, receive, send)
    return sent


@pytest.mark.parametrize("host", ["localhost", "evil.example"])
async def test_every_response_has_the_headers(host: str) -> None:
    start = (await call({}, {"host": host}))[0]
    headers = dict(start["headers"])
    assert headers[b"content-security-policy"].decode() == CSP
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"x-frame-options"] == b"DENY"
    assert headers[b"referrer-policy"] == b"same-origin"
    assert headers[b"cache-control"] == b"no-store"
    assert b"set-cookie" not in headers
    assert (b"x-own" in headers) is (host == "localhost")


def test_the_policy_is_the_one_of_the_design() -> None:
    assert CSP == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


async def test_a_refused_request_never_reaches_the_app() -> None:
    start, body = await call({"method": "POST"})
    assert start["status"] == 403
    assert b"of the app" not in body["body"]


async def test_a_websocket_is_closed() -> None:
    assert await call({"type": "websocket"}) == [{"type": "websocket.close", "code": 1008}]
