"""What `manage.py check` says about wrong settings, each in one sentence."""

import os
from collections.abc import Iterator
from typing import Any, Protocol

import django
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from tampu.django.settings import BackendOptions, BackendSettings, EnqueueMode
from tampu.django.tasks_api import task_backends
from tampu.errors import OptionError


class HasSettings(Protocol):
    """What is needed of a `TampuBackend`."""

    alias: str

    @property
    def settings(self) -> BackendSettings:
        """Its settings; `OptionError` if they are invalid."""


def check_backend(backend: HasSettings) -> Iterator[CheckMessage]:
    """What is wrong with the settings of a backend."""
    where = f'TASKS["{backend.alias}"]'
    try:
        options = backend.settings.options
    except OptionError as error:
        yield Error(f"{where}: {error}", id="tampu.E001")
        return
    if options.mode is not EnqueueMode.NOW:
        yield from _check_database(options, where)
    if not apps.is_installed("tampu.django"):
        text = f'{where}: add "tampu.django" to INSTALLED_APPS, which has the command tampu_worker'
        if options.mode is EnqueueMode.OUTBOX:
            yield Error(f"{text} and the table of the outbox.", id="tampu.E003")
        else:
            yield Warning(f"{text}.", id="tampu.W001")
    if options.url is None and "TAMPU_URL" not in os.environ and not settings.DEBUG:
        text = "an embedded server in the current directory would be used, as DEBUG is off"
        yield Warning(f"{where}: without the option url and TAMPU_URL, {text}.", id="tampu.W002")


def _check_database(options: BackendOptions, where: str) -> Iterator[CheckMessage]:
    """What is wrong with the database whose transactions count."""
    if options.database not in settings.DATABASES:
        problem = (
            f'{where}: DATABASES has no "{options.database}", which the option database names.'
        )
        yield Error(problem, id="tampu.E002")
    elif options.mode is EnqueueMode.OUTBOX:
        vendor = connections[options.database].vendor
        if vendor not in {"postgresql", "sqlite"}:
            problem = f"{where}: an outbox works with PostgreSQL and SQLite, not with {vendor}."
            yield Error(problem, id="tampu.E005")


def check_settings(**_: Any) -> Iterator[CheckMessage]:  # noqa: ANN401 - as Django has it
    """What is wrong with other settings. Django asks backends itself, as django-tasks does."""
    url = getattr(settings, "TAMPU_DASHBOARD_URL", None)
    if url is not None and (not isinstance(url, str) or not url.startswith(("/", "http"))):
        yield Error("TAMPU_DASHBOARD_URL must be a path such as /jobs/ or a URL.", id="tampu.E004")
    if django.VERSION < (6, 0) and not apps.is_installed("django_tasks"):
        for backend in task_backends.all():
            yield from backend.check()
