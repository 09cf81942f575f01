"""What Celery has is here, or raises and says how to do it in tampu."""

import importlib
import json
from typing import Any, Final

import pytest

from tampu.compat.celery import Celery, NotSupported, Task, group, signals, states, uuid
from tampu.compat.celery._absent import ABSENT
from tampu.compat.celery._settings import ONLY, REFUSED, USED, WITHOUT_EFFECT
from tampu.compat.celery._task_options import set_options
from tampu.compat.celery.app.task import Task as TaskOfApp
from tampu.compat.celery.utils.log import get_logger
from tests.compat.celery.capture import GOLDEN
from tests.guide.pages import GUIDE

NAMES: Final[dict[str, list[str]]] = json.loads(GOLDEN.read_text("utf-8"))["names"]
app = Celery("names", set_as_current=False)


@app.task
def task() -> None: ...


HERE: Final[dict[str, Any]] = {
    "app": app,
    "Task": task,
    "AsyncResult": app.AsyncResult("x"),
    "GroupResult": app.GroupResult("x", []),
    "signature": task.s(),
    "app.control": app.control,
    "signals": signals,
}
NEEDS_A_SERVER: Final = {"state", "status", "result", "info", "traceback", "name", "retries"}


@pytest.mark.parametrize("owner", HERE)
def test_every_name_is_here_or_says_what_to_do(owner: str) -> None:
    thing, refused = HERE[owner], set()
    for name in set(NAMES[owner]) - (NEEDS_A_SERVER if owner == "AsyncResult" else set()):
        try:
            getattr(thing, name)
        except NotSupported as error:
            assert str(error).startswith(f"tampu.compat.celery does not support {owner}.{name}: ")
            refused.add(name)
    extra = {"skew", "task_sent"}  # of group, and of older versions
    assert set(ABSENT[owner]) - extra == refused, "and nothing is refused that Celery does not have"


def test_a_name_that_celery_does_not_have_either_is_an_attribute_error() -> None:
    for thing in HERE.values():
        assert not hasattr(thing, "nothing_of_this_name")


def test_the_command_of_celery_is_told_how_a_worker_starts() -> None:
    with pytest.raises(NotSupported, match="`celery` cannot run this app: start `tampu worker"):
        _ = app.user_options


@pytest.mark.parametrize("module", [each for each in ABSENT if each not in HERE])
def test_an_import_of_what_is_not_there_says_what_to_do(module: str) -> None:
    here = importlib.import_module(f"tampu.compat.{module}")
    for name, advice in ABSENT[module].items():
        with pytest.raises(ImportError, match=f"does not support {module}.{name}: ") as refused:
            exec(f"from tampu.compat.{module} import {name}", {})  # noqa: S102 - as a program does
        assert isinstance(refused.value, NotSupported)
        assert refused.value.advice == advice
    assert not hasattr(here, "nothing_of_this_name")


def test_small_things_that_programs_import_are_there() -> None:
    assert TaskOfApp is Task
    assert len({uuid(), uuid()}) == 2
    assert get_logger("shop").name == "shop"
    assert states.SUCCESS in states.READY_STATES
    assert states.ALL_STATES < states.READY_STATES | states.UNREADY_STATES


@pytest.mark.parametrize("name", NAMES["settings"])
def test_every_setting_has_an_effect_or_needs_none_or_is_refused(name: str) -> None:
    assert [name in group for group in (USED, WITHOUT_EFFECT, ONLY, REFUSED)].count(True) <= 1
    if name in {*USED, *WITHOUT_EFFECT, *ONLY}:
        return
    with pytest.raises(NotSupported, match=f"does not support the setting {name}"):
        app.conf.update({name: 1})


def test_the_guide_names_every_setting_with_an_effect() -> None:
    text = (GUIDE / "moving-from-celery.md").read_text("utf-8")
    assert [name for name in USED if f"`{name}`" not in text] == []


def test_the_settings_are_those_of_celery() -> None:
    ours = {*USED, *WITHOUT_EFFECT, *ONLY, *REFUSED}
    older = {
        *("broker_heartbeat", "redis_backend_health_check_interval", "result_extended"),
        *("result_backend_transport_options", "task_default_delivery_mode"),
        *("redis_backend_use_ssl", "worker_deduplicate_successful_tasks"),
    }
    assert ours - set(NAMES["settings"]) <= older | {"beat_schedule"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task_serializer", "pickle"),
        ("accept_content", ["pickle"]),
        ("task_acks_late", False),
        ("task_reject_on_worker_lost", False),
        ("result_expires", None),
        ("enable_utc", False),
        ("broker_url", "amqp://localhost"),
        ("broker_url", "memory://"),
        ("broker_url", "sentinel://localhost:26379"),
        ("result_backend", "db+sqlite:///results.db"),
        ("broker_transport_options", {"global_keyprefix": "x"}),
        ("beat_scheduler", "django_celery_beat.schedulers:DatabaseScheduler"),
        ("worker_pool", "gevent"),
        ("worker_max_tasks_per_child", 10),
        ("task_routes", {"shop.*": {"exchange": "media"}}),
        ("task_routes", ["shop.route_task"]),
        ("BROKER_URL", "redis://localhost"),
        ("no_such_setting", 1),
    ],
)
def test_a_setting_that_asks_for_what_is_not_there_is_refused(name: str, value: object) -> None:
    before = dict(app.conf._values)
    with pytest.raises(NotSupported):
        app.conf.update({name: value, "task_default_queue": "other"})
    assert dict(app.conf._values) == before, "all or nothing"


@pytest.mark.parametrize(
    "options",
    [
        {"acks_late": False},
        {"reject_on_worker_lost": False},
        {"serializer": "pickle"},
        {"pydantic": True},
        {"exchange": "media"},
        {"no_such_option": 1},
    ],
)
def test_an_option_of_a_task_that_is_not_there_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(NotSupported):
        app.task(**options)(lambda: None)


@pytest.mark.parametrize(
    "options",
    [
        {"routing_key": "media"},
        {"exchange": "media"},
        {"serializer": "pickle"},
        {"soft_time_limit": 5},
        {"time_limit": 5},
        {"ignore_result": True},
        {"no_such_option": 1},
        {"link": group(task.s())},
        {"link": task.s().set(countdown=1)},
    ],
)
def test_an_option_of_a_job_that_is_not_there_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NotSupported):
        task.apply_async((), **options)


def test_a_name_that_is_nearly_right_is_corrected() -> None:
    with pytest.raises(NotSupported, match=r"countdwn of a job \(did you mean countdown\?\): "):
        task.apply_async((), countdwn=3)
    with pytest.raises(NotSupported, match=r"task_serialiser \(did you mean task_serializer\?\): "):
        app.conf.update(task_serialiser="json")
    with pytest.raises(NotSupported, match=r"max_retry of a task \(did you mean max_retries\?\): "):
        app.task(max_retry=3)(lambda: None)


def test_functions_that_cannot_be_tasks_are_refused() -> None:
    async def async_function() -> None: ...
    def many(*args: int) -> None: ...
    def named(**kwargs: int) -> None: ...

    for function in (async_function, many, named):
        with pytest.raises(NotSupported):
            app.task(function)


def test_other_calls_that_are_not_there_are_refused() -> None:
    with pytest.raises(NotSupported, match="which is not imported here"):
        app.send_task("elsewhere.task", (1,))
    with pytest.raises(NotSupported, match="inside a chain or chord"):
        (task.s() | task.si().set(countdown=5)).apply_async()
    with pytest.raises(NotSupported, match="ends with a group"):
        (task.s() | group(task.si(), task.si())).apply_async()
    with pytest.raises(NotSupported, match="with a callback"):
        app.AsyncResult("x").get(callback=print)
    with pytest.raises(NotSupported, match="autodiscover_tasks"):
        app.autodiscover_tasks(force=True)
    with pytest.raises(NotSupported, match="retry"):
        set_options(task, {"no_retry": 1})
