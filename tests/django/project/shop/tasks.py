"""The tasks of the project."""

import os
import signal

import django
from asgiref.sync import sync_to_async
from django.db import connection
from django.db.models import F

from shop.models import Order
from tampu import Snooze

if django.VERSION >= (6, 0):
    from django.tasks import TaskContext, task
else:
    from django_tasks import TaskContext, task


@task
def add(a: int, b: int) -> int:
    return a + b


@task
async def add_async(a: int, b: int) -> int:
    return a + b


@task(queue_name="emails", takes_context=True)
def describe(context: TaskContext) -> dict:
    result = context.task_result
    return {"id": result.id, "attempt": context.attempt, "status": result.status.value}


@task
def charge(order_id: int) -> int:
    Order.objects.filter(pk=order_id).update(charged=F("charged") + 1)
    return Order.objects.get(pk=order_id).charged


@task
async def charge_async(order_id: int) -> int:
    await Order.objects.filter(pk=order_id).aupdate(charged=F("charged") + 1)
    return (await Order.objects.aget(pk=order_id)).charged


def ask_connection() -> list[int]:
    """The connection of this thread, and how many there are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_backend_pid(), count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return list(cursor.fetchone())


@task
def connection_of() -> list[int]:
    return ask_connection()


@task
async def connection_of_async() -> list[int]:
    return await sync_to_async(ask_connection)()


@task
def count_queries(order_id: int) -> int:
    """How many queries Django remembers, which it does with DEBUG."""
    Order.objects.get(pk=order_id)
    return len(connection.queries)


@task
def fail(words: str) -> None:
    raise ValueError(words)


@task
def return_object() -> object:
    return object()


@task
def die() -> None:
    """End the worker as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True)
def die_once(context: TaskContext) -> int:
    """End the worker as a crash does, in the first attempt."""
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.attempt


@task(takes_context=True)
def snooze_once(context: TaskContext) -> int:
    if not Order.objects.exists():
        Order.objects.create()
        raise Snooze(0.01)
    return context.attempt


def plain() -> None:
    """Not a task."""
