"""What a test has a program of the project do. Each line it reads names a function and arguments.

The answer is a line with what the function has returned, or the traceback.
"""

import asyncio
import json
import os
import sys
import time
import traceback
from datetime import timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

import django
from django.db import connection, transaction

django.setup()

if django.VERSION >= (6, 0):
    from django.tasks import default_task_backend
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
else:
    from django_tasks import default_task_backend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued

from django.contrib.auth import get_user_model
from django.test import Client
from shop import jobs, tasks
from shop.models import Order

from tampu import ServerUnreachable
from tampu.django import TampuTask


def enqueue(name: str, args: list, times: int = 1) -> list[str]:
    """Add a task so many times; the ids of the results."""
    task = getattr(tasks, name)
    return [task.enqueue(*args).id for _ in range(times)]


def enqueue_using(name: str, args: list, changes: dict) -> list:
    """Add a task with options; its id, and whether its result has the same task."""
    if "seconds" in changes:
        changes["run_after"] = timedelta(seconds=changes.pop("seconds"))
    result = getattr(tasks, name).using(**changes).enqueue(*args)
    return [result.id, default_task_backend.get_result(result.id).task == result.task]


def problem_with(changes: dict) -> list[str]:
    """Why a task with such options is refused: by `using`, and by the decorator."""
    told = []
    declare = {"func": tasks.plain, "priority": 0, "backend": "default", "queue_name": "default"}
    for make in (
        tasks.add.using,
        lambda **given: TampuTask(**{"run_after": None, **declare, **given}),
    ):
        try:
            make(**changes)
        except InvalidTask as error:
            told.append(str(error))
    return told


def enqueue_async(name: str, args: list) -> list:
    """Add a task from async code; its id, and whether its result can be had there."""

    async def add() -> list:
        result = await getattr(tasks, name).aenqueue(*args)
        again = await default_task_backend.aget_result(result.id)
        await result.arefresh()
        return [result.id, again == result]

    return asyncio.run(add())


def enqueue_under(name: str) -> list[str]:
    """Add a job under a name that is perhaps no task."""
    app = default_task_backend.app

    async def add() -> str:
        return (await app.queue().add(name, {"args": [], "kwargs": {}})).id

    return [f"{app.portal().call(add)}@default"]


def data_of(queue: str) -> object:
    """The data of the first job that waits."""
    app = default_task_backend.app

    async def read() -> object:
        async for each in app.queue(queue).jobs(state="waiting"):
            return each.data
        return None

    return app.portal().call(read)


def is_missing(id: str) -> bool:
    """Whether there is no result of this id."""
    try:
        default_task_backend.get_result(id)
    except TaskResultDoesNotExist:
        return True
    return False


def results(ids: list[str]) -> list[dict]:
    """What is known of results."""
    return [describe(default_task_backend.get_result(each)) for each in ids]


def wait(ids: list[str]) -> list[dict]:
    """As `results`, once all of them have finished."""
    limit = time.monotonic() + 90
    while not all(default_task_backend.get_result(each).is_finished for each in ids):
        assert time.monotonic() < limit, "the tasks have not finished"
        time.sleep(0.05)
    return results(ids)


def wait_for_known(ids: list[str]) -> list[dict]:
    """As `wait`, for results of jobs that are not yet on their queues."""
    limit = time.monotonic() + 60
    while any(map(is_missing, ids)):
        assert time.monotonic() < limit, "the jobs are not on their queues"
        time.sleep(0.05)
    return wait(ids)


def rows_of_outbox() -> int:
    """How many jobs wait in the outbox."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tampu_outbox")
        return cursor.fetchone()[0]


def describe(result: object) -> dict:
    """A result as JSON."""
    return {
        "status": result.status.value,
        "value": result._return_value,
        "task": result.task.module_path,
        "args": result.args,
        "attempts": result.attempts,
        "errors": [each.exception_class.__name__ for each in result.errors],
        "times": [
            each is not None for each in (result.enqueued_at, result.started_at, result.finished_at)
        ],
    }


def run_jobs(times: int) -> list:
    """What tasks of the app of the project return, plain and async ones in turns."""
    pair = (jobs.connection_of, jobs.connection_of_async)
    added = [task.enqueue_sync() for _ in range(times) for task in pair]
    return [each.result(60) for each in added]


def log_in(name: str) -> str:
    """The session of a new user; Ada is staff."""
    client = Client()
    user = get_user_model().objects.create_user(name, is_staff=name == "ada")
    client.force_login(user)
    return client.cookies["sessionid"].value


def admin_pages() -> dict:
    """What staff sees in the admin, and where the link leads."""
    name = f"user {time.time()}"
    client = Client(headers={"host": "127.0.0.1"})
    client.force_login(get_user_model().objects.create_user(name, is_staff=True))
    found = client.get("/admin/tampu/dashboardlink/")
    return {
        "index": client.get("/admin/").content.decode(),
        "goes to": found.headers.get("location"),
    }


def make_orders(count: int) -> list[int]:
    """So many orders; their ids."""
    return [Order.objects.create().pk for _ in range(count)]


def charges() -> list[int]:
    """How often each order was charged."""
    return list(Order.objects.order_by("pk").values_list("charged", flat=True))


def in_transactions() -> dict:
    """Enqueue in transactions that are committed and rolled back; how many signals there were."""
    told: list[str] = []
    task_enqueued.connect(lambda task_result, **_: told.append(task_result.id), weak=False)
    ids = {"rolled back": [], "committed": [], "told early": 0}
    for name in ("rolled back", "committed"):
        try:
            with transaction.atomic():
                ids[name].append(tasks.add.enqueue(1, 2).id)
                with transaction.atomic():
                    ids[name].append(tasks.add.using(priority=50).enqueue(1, 2).id)
                try:
                    with transaction.atomic():
                        ids["rolled back"].append(tasks.add.enqueue(1, 2).id)
                        raise KeyError
                except KeyError:
                    pass
                ids["told early"] += len(told)
                if name == "rolled back":
                    raise LookupError
        except LookupError:
            pass
    asyncio.run(_in_async_transaction(ids))
    return {**ids, "told": told}


def commit_without_server() -> list:
    """Enqueue in a transaction while the server is away: the error, orders, and hooks that ran."""
    ran: list[str] = []
    told = None
    try:
        with transaction.atomic():
            Order.objects.create()
            transaction.on_commit(lambda: ran.append("before"))
            tasks.add.enqueue(1, 2)
            transaction.on_commit(lambda: ran.append("after"))
    except ServerUnreachable as error:
        told = type(error).__name__
    return [told, Order.objects.count(), ran]


async def _in_async_transaction(ids: dict) -> None:
    result = await tasks.add.aenqueue(1, 2)  # no transaction is open
    ids["committed"].append(result.id)


if __name__ == "__main__":
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = [globals()[name](*arguments), None]
        except Exception:
            answer = [None, traceback.format_exc()]
        print(json.dumps(answer), flush=True)
