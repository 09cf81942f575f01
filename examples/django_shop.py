"""Django's own tasks on tampu, in a project of one file.

Usually the settings are in `settings.py`, and `manage.py tampu_worker` is the worker.

It prints:

    SUCCESSFUL hello ada
    SUCCESSFUL 1
    nothing was added for what was rolled back
"""

import asyncio
import os

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "tampu.django"],
    TASKS={
        "default": {
            "BACKEND": "tampu.django.TampuBackend",
            "OPTIONS": {"url": os.environ.get("TAMPU_URL"), "enqueue": "outbox"},
        }
    },
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction

from tampu import AppWorker

if django.VERSION >= (6, 0):
    from django.tasks import default_task_backend, task
    from django.tasks.exceptions import TaskResultDoesNotExist
else:
    from django_tasks import default_task_backend, task
    from django_tasks.exceptions import TaskResultDoesNotExist


@task
def welcome(name: str) -> str:
    """A plain task: it runs in a thread, with a database connection of that thread."""
    return f"hello {User.objects.get(username=name).username}"


@task
async def count() -> int:
    """An async task: the model runs in the same thread, and the rest on the event loop."""
    return await User.objects.acount()


def sign_up(name: str, *, fails: bool = False) -> str:
    """Add a user and a job, both or neither; the id of the job's result."""
    with transaction.atomic():
        User.objects.create(username=name)
        result = welcome.enqueue(name)
        transaction.set_rollback(fails)  # as an exception does
    return str(result.id)


async def wait_for(result_id: str) -> None:
    """Print how a task has ended."""
    while True:
        try:
            result = await default_task_backend.aget_result(result_id)
        except TaskResultDoesNotExist:  # the relay has not moved its job to the queue yet
            await asyncio.sleep(0.01)
            continue
        if result.is_finished:
            print(result.status, result.return_value)
            return
        await asyncio.sleep(0.01)


async def main() -> None:
    """Start the worker in the same program. Usually you run `manage.py tampu_worker`."""
    async with AppWorker(default_task_backend.app):
        kept = await asyncio.to_thread(sign_up, "ada")
        dropped = await asyncio.to_thread(sign_up, "bob", fails=True)
        await wait_for(kept)
        counted = await count.aenqueue()
        await wait_for(counted.id)
        try:
            await default_task_backend.aget_result(dropped)
        except TaskResultDoesNotExist:
            print("nothing was added for what was rolled back")


if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    asyncio.run(main())
