"""When a worker is well, and what it answers to a health check."""

from http import HTTPStatus

import msgspec
import pytest

from tampu.admin.metrics import MetricsPage
from tampu.cli.worker.health import TOO_SILENT_S, HealthReport, answer, answer_metrics

WELL = HealthReport(
    live=True, started=True, stopping=False, running=3, processes=2, server_seen_s_ago=0.5
)


def but(**fields: object) -> HealthReport:
    return msgspec.structs.replace(WELL, **fields)


@pytest.mark.parametrize(
    ("health", "well", "ready"),
    [
        (WELL, True, True),
        (but(stopping=True), True, False),
        (but(started=False), False, False),
        (but(live=False), False, False),
        (but(server_seen_s_ago=None), False, False),
        (but(server_seen_s_ago=TOO_SILENT_S), False, False),
    ],
)
def test_when_a_worker_is_well_and_when_it_is_ready(
    health: HealthReport,
    well: bool,  # noqa: FBT001
    ready: bool,  # noqa: FBT001
) -> None:
    assert (health.is_well, health.is_ready) == (well, ready)


@pytest.mark.parametrize(
    ("request_line", "health", "status"),
    [
        ("GET /live HTTP/1.1", WELL, HTTPStatus.OK),
        ("HEAD /ready HTTP/1.0", WELL, HTTPStatus.OK),
        ("GET /ready?verbose=1 HTTP/1.1", WELL, HTTPStatus.OK),
        ("GET /live HTTP/1.1", but(live=False), HTTPStatus.SERVICE_UNAVAILABLE),
        ("GET /live HTTP/1.1", but(stopping=True), HTTPStatus.OK),
        ("GET /ready HTTP/1.1", but(stopping=True), HTTPStatus.SERVICE_UNAVAILABLE),
        ("POST /ready HTTP/1.1", WELL, HTTPStatus.METHOD_NOT_ALLOWED),
        ("POST /metrics HTTP/1.1", WELL, HTTPStatus.METHOD_NOT_ALLOWED),
        ("GET / HTTP/1.1", WELL, HTTPStatus.NOT_FOUND),
        ("nonsense", WELL, HTTPStatus.NOT_FOUND),
        ("", WELL, HTTPStatus.NOT_FOUND),
    ],
)
def test_each_request_gets_its_answer(
    request_line: str, health: HealthReport, status: HTTPStatus
) -> None:
    found, body = answer(request_line, health)
    assert found is status
    assert isinstance(msgspec.json.decode(body), dict)


def test_the_body_shows_what_runs_and_when_the_server_was_seen() -> None:
    _, body = answer("GET /ready HTTP/1.1", WELL)
    assert msgspec.json.decode(body) == {
        "live": True,
        "ready": True,
        "stopping": False,
        "running": 3,
        "processes": 2,
        "server_seen_s_ago": 0.5,
    }


def test_metrics_are_shown_as_they_are_and_a_problem_is_a_comment() -> None:
    assert answer_metrics(MetricsPage("up 1\n")) == (HTTPStatus.OK, b"up 1\n")
    status, body = answer_metrics(MetricsPage("", "the server is away"))
    assert (status, body) == (HTTPStatus.SERVICE_UNAVAILABLE, b"# the server is away\n")
