# ruff: noqa
# mypy: ignore-errors
# A program as people write them for Celery. Tests run it with one import changed.
import os
import time
from datetime import timedelta

from celery import Celery, Task, chain, chord, group, shared_task
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, SoftTimeLimitExceeded
from celery.result import AsyncResult
from celery.schedules import crontab
from celery.signals import task_postrun, worker_process_init
from celery.utils.log import get_task_logger

logger = get_task_logger(__name__)
app = Celery("shop", broker=os.environ["BROKER_URL"], backend=os.environ["BROKER_URL"])
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    timezone="Europe/Berlin",
    result_expires=timedelta(hours=1),
    task_acks_late=True,
    task_track_started=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 3600},
    task_routes={"shop.send": {"queue": "emails"}},
    beat_schedule={
        "digest": {"task": "shop.add", "schedule": crontab(hour=9, minute=0), "args": (1, 2)},
        "clean": {"task": "shop.total", "schedule": timedelta(hours=1), "args": ([1],)},
    },
)
ENDED = []


class Logged(Task):
    def on_failure(self, exc, task_id, args, kwargs, einfo):
        logger.error("%s%r failed: %r", self.name, tuple(args), exc)


@worker_process_init.connect
def connect_database(**kwargs):
    logger.info("the process is ready")


@task_postrun.connect
def note(sender=None, state=None, **kwargs):
    ENDED.append((sender.name, state))


@app.task
def add(x, y):
    return x + y


@app.task(bind=True, max_retries=2, default_retry_delay=1)
def send(self, to, template="hello"):
    try:
        if self.request.retries < 2:
            raise ConnectionError("the mail server is away")
    except ConnectionError as exc:
        raise self.retry(exc=exc, countdown=0)
    return {"to": to, "template": template, "retries": self.request.retries}


@app.task(
    bind=True,
    base=Logged,
    autoretry_for=(OSError,),
    max_retries=1,
    retry_backoff=True,
    retry_backoff_max=1,
    retry_jitter=False,
)
def fetch(self, url):
    raise OSError(f"cannot fetch {url}")


@app.task(bind=True, max_retries=0)
def give_up(self):
    self.retry(countdown=0)


@shared_task
def total(numbers):
    return sum(numbers)


@app.task(soft_time_limit=1, time_limit=30)
def slow():
    try:
        time.sleep(20)
    except SoftTimeLimitExceeded:
        return "cleaned up"


@app.task
def fail(kind):
    raise {"value": ValueError, "key": LookupError}[kind]("boom")


@app.task(bind=True)
def look(self, a, b=2):
    request = self.request
    return [list(request.args), dict(request.kwargs), request.retries, request.task]
