"""What is answered to whom, and when a worker counts as well."""

from http import HTTPStatus

import msgspec
import pytest

from tampu.cli.working.health import TOO_SILENT_S, Health, answer

WELL = Health(
    live=True, started=True, stopping=False, running=3, processes=2, server_seen_s_ago=0.5
)


def changed(**fields: object) -> Health:
    return msgspec.structs.replace(WELL, **fields)


@pytest.mark.parametrize(
    ("health", "well", "ready"),
    [
        (WELL, True, True),
        (changed(stopping=True), True, False),
        (changed(started=False), False, False),
        (changed(live=False), False, False),
        (changed(server_seen_s_ago=None), False, False),
        (changed(server_seen_s_ago=TOO_SILENT_S), False, False),
    ],
)
def test_who_is_well_and_who_is_ready(health: Health, well: bool, ready: bool) -> None:  # noqa: FBT001
    assert (health.is_well, health.is_ready) == (well, ready)


@pytest.mark.parametrize(
    ("request_line", "health", "status"),
    [
        ("GET /live HTTP/1.1", WELL, HTTPStatus.OK),
        ("HEAD /ready HTTP/1.0", WELL, HTTPStatus.OK),
        ("GET /ready?verbose=1 HTTP/1.1", WELL, HTTPStatus.OK),
        ("GET /live HTTP/1.1", changed(live=False), HTTPStatus.SERVICE_UNAVAILABLE),
        ("GET /live HTTP/1.1", changed(stopping=True), HTTPStatus.OK),
        ("GET /ready HTTP/1.1", changed(stopping=True), HTTPStatus.SERVICE_UNAVAILABLE),
        ("POST /ready HTTP/1.1", WELL, HTTPStatus.METHOD_NOT_ALLOWED),
        ("GET / HTTP/1.1", WELL, HTTPStatus.NOT_FOUND),
        ("nonsense", WELL, HTTPStatus.NOT_FOUND),
        ("", WELL, HTTPStatus.NOT_FOUND),
    ],
)
def test_each_request_has_its_answer(request_line: str, health: Health, status: HTTPStatus) -> None:
    found, body = answer(request_line, health)
    assert found is status
    assert isinstance(msgspec.json.decode(body), dict)


def test_the_body_tells_what_runs_and_when_the_server_was_seen() -> None:
    _, body = answer("GET /ready HTTP/1.1", WELL)
    assert msgspec.json.decode(body) == {
        "live": True,
        "ready": True,
        "stopping": False,
        "running": 3,
        "processes": 2,
        "server_seen_s_ago": 0.5,
    }
