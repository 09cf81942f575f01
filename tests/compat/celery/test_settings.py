"""Settings, schedules and what an app imports. No server is needed."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tampu import Cron, Every, TimeWindow
from tampu.compat.celery import Celery, NotSupported, crontab
from tampu.compat.celery.schedules import Placed, Schedule, rule_of
from tampu.errors import OptionError


def app_with(**settings: Any) -> Celery:
    return Celery("shop", set_as_current=False, **settings)


@pytest.mark.parametrize(
    ("broker", "url"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("rediss://:secret@localhost/1", "rediss://:secret@localhost/1"),
        ("redis+socket:///run/redis.sock", "unix:///run/redis.sock"),
        ("embedded:data", "embedded:data"),
        ("redis+cluster://a,b", "redis+cluster://a,b"),
        (None, None),
    ],
)
def test_the_broker_is_the_server(broker: str | None, url: str | None) -> None:
    assert app_with(broker=broker).tampu.url == url


def test_the_broker_may_be_in_the_environment_or_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://elsewhere")
    app = app_with()
    assert app.tampu.url == "redis://elsewhere"
    app.conf.broker_url = "redis://here"
    assert (app.tampu.url, app.conf["broker_url"]) == ("redis://here", "redis://here")


def test_settings_come_from_modules_objects_and_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = ModuleType("celeryconfig")
    module.task_default_queue, module.os, module.helper = "jobs", sys, len
    module.result_expires = 60
    monkeypatch.setitem(sys.modules, "celeryconfig", module)
    app = app_with()
    app.config_from_object("celeryconfig")
    assert (app.tampu.default_queue, app.tampu.worker["result_ttl"]) == ("jobs", 60.0)
    django = SimpleNamespace(
        CELERY_TASK_DEFAULT_QUEUE="site", CELERY_TIMEZONE="Asia/Tokyo", DEBUG=1
    )
    app.config_from_object(django, namespace="CELERY")
    assert (app.conf.task_default_queue, app.zone) == ("site", "Asia/Tokyo")
    monkeypatch.setenv("CONFIG", "celeryconfig")
    app.config_from_envvar("CONFIG")
    assert app.conf.task_default_queue == "jobs"
    module.task_no_such_setting = 1
    with pytest.raises(NotSupported, match="task_no_such_setting"):
        app.config_from_object("celeryconfig")
    assert app_with(config_source=django, namespace="CELERY").zone == "Asia/Tokyo"


def test_settings_become_options_of_the_workers() -> None:
    app = app_with(result_expires=timedelta(minutes=1), worker_concurrency=7, task_time_limit=30)
    assert app.tampu.worker == {
        "store_results": True,
        "result_ttl": 60.0,
        "concurrency": 7,
        "timeout": 30.0,
        "isolation": "process",
    }
    solo = app_with(worker_pool="solo", task_ignore_result=True)
    assert (solo.tampu.worker["concurrency"], solo.tampu.worker["store_results"]) == (1, False)
    assert "isolation" not in solo.tampu.worker
    with pytest.raises(AttributeError):
        _ = app.conf.no_such_setting
    assert app.conf.get("no_such_setting", 5) == 5
    assert "secret" not in repr(app_with(broker="redis://:secret@localhost").conf)
    with pytest.raises(OptionError):
        app_with(timezone="Mars/Olympus")


def test_options_of_a_task_become_those_of_tampu() -> None:
    app = app_with()

    @app.task(
        queue="media",
        time_limit=60,
        soft_time_limit=50,
        rate_limit=5,
        priority=3,
        ignore_result=True,
    )
    def convert() -> None: ...

    task = convert.tampu
    assert (task.queue, task.handler.timeout, task.handler.isolation) == ("media", 60, "process")
    assert (task.handler.result_ttl, task.handler.attempts) == (0, 25)
    assert convert.time_limits == (60, 50)

    @app.task(max_retries=None)
    def forever() -> None: ...

    @app.task(max_retries=100)
    def often() -> None: ...

    assert (forever.tampu.handler.attempts, often.tampu.handler.attempts) == (2**32 - 1, 102)
    for rate in ("10/x", "0.5/s"):
        with pytest.raises((NotSupported, OptionError)):
            app.task(rate_limit=rate)(lambda: None)


def test_routes_choose_queues_when_a_task_is_sent() -> None:
    app = app_with()

    @app.task(name="shop.mail.send")
    def send() -> None: ...

    @app.task(name="shop.mail.own", queue="own")
    def own() -> None: ...

    assert (send.queue_name, own.queue_name) == ("celery", "own")
    app.conf.task_routes = {"shop.mail.*": "mail", "other": {"queue": "x"}}
    assert (send.queue_name, own.queue_name) == ("mail", "own")
    app.conf.task_routes = ([("shop.*", {"queue": SimpleNamespace(name="shop")})],)
    assert send.queue_name == "shop"
    app.conf.task_queues = [SimpleNamespace(name="extra"), "more"]
    assert app.known_queues() == ["extra", "more", "celery", "own", "shop"]


def test_modules_with_tasks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mail_part", "bare_part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    source = "from tampu.compat.celery import shared_task\n@shared_task\ndef send(): ...\n"
    (tmp_path / "mail_part" / "tasks.py").write_text(source)
    (tmp_path / "more_tasks.py").write_text(source)
    app = Celery("shop", include=["more_tasks"])
    app.autodiscover_tasks(["mail_part", "bare_part"])
    assert app.tampu.imports == ["more_tasks", "mail_part.tasks"]
    app.autodiscover_tasks(lambda: ["mail_part"], related_name="tasks", force=True)
    assert {"mail_part.tasks.send", "more_tasks.send"} <= app.tasks.keys()
    assert "mail_part.tasks.send" in app.tampu.tasks


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (crontab(), Placed(Cron("* * * * *", tz="Asia/Tokyo"))),
        (crontab(minute=0, hour="*/3"), Placed(Cron("0 */3 * * *", tz="Asia/Tokyo"))),
        (crontab(0, [8, 17], "Monday,fri"), Placed(Cron("0 8,17 * * mon,fri", tz="Asia/Tokyo"))),
        (crontab(0, 0, day_of_month="1-7"), Placed(Cron("0 0 1-7 * *", tz="Asia/Tokyo"))),
        (crontab(0, 0, month_of_year={1, 7}), Placed(Cron("0 0 * 1,7 *", tz="Asia/Tokyo"))),
        (
            crontab(0, 9, day_of_week="sat-mon", day_of_month="1-7"),
            Placed(
                Cron("0 9 1-7 * *", tz="Asia/Tokyo"),
                TimeWindow(tz="Asia/Tokyo", days=["sat", "sun", "mon"]),
            ),
        ),
        (
            crontab(0, 9, day_of_week="*/2,1", day_of_month=13),
            Placed(
                Cron("0 9 13 * *", tz="Asia/Tokyo"),
                TimeWindow(tz="Asia/Tokyo", days=["sun", "tue", "thu", "sat", "mon"]),
            ),
        ),
        (crontab.from_string("5 4 * * 1"), Placed(Cron("5 4 * * 1", tz="Asia/Tokyo"))),
        (30, Placed(Every(30))),
        (timedelta(hours=1), Placed(Every("1h"))),
        (Schedule(1.5), Placed(Every(1.5))),
    ],
)
def test_schedules_become_rules(given: Any, expected: Placed) -> None:
    assert rule_of(given).place("Asia/Tokyo") == expected


def test_days_of_the_month_and_of_the_week_must_both_match_as_in_celery() -> None:
    placed = crontab(0, 9, day_of_week="fri", day_of_month=13).place("UTC")
    window = placed.window
    assert window is not None
    at_ms, found = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000), list[datetime]()
    while len(found) < 3:
        at_ms = placed.rule.next_ms(at_ms) or 0
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        if window.contains(at):
            found.append(at)
    assert [(at.month, at.weekday(), at.hour) for at in found] == [(2, 4, 9), (3, 4, 9), (11, 4, 9)]


def test_schedules_that_do_not_exist_here_are_refused() -> None:
    for refused in ("every day", None, lambda: 5):
        with pytest.raises(NotSupported):
            rule_of(refused)
    with pytest.raises(NotSupported):
        Schedule(5, relative=True)
    with pytest.raises(NotSupported):
        crontab(nowfun=datetime.now)
    with pytest.raises(OptionError):
        crontab(minute=70)
    with pytest.raises(NotSupported):
        from tampu.compat.celery.schedules import solar  # noqa: PLC0415, F401


@pytest.mark.parametrize(
    "entry",
    [
        {"task": "unknown", "schedule": 5},
        {"task": "known", "schedule": 5, "no_such_key": 1},
        {"task": "known", "schedule": 5, "options": {"countdown": 5}},
        {"task": "known", "schedule": "daily"},
    ],
)
def test_an_entry_that_cannot_be_a_schedule_is_refused_when_a_worker_starts(
    entry: dict[str, object],
) -> None:
    app = app_with(beat_schedule={"entry": entry})

    @app.task(name="known")
    def known() -> None: ...

    with pytest.raises(NotSupported):
        app.tampu.check_schedules(["celery"])
