"""What `manage.py tampu_worker` runs: `tampu.django.worker:ALIAS`, for each alias of `TASKS`."""

import os
from importlib import import_module

import django
from django.apps import apps
from django.conf import ENVIRONMENT_VARIABLE, settings
from django.utils.module_loading import module_has_submodule

from tampu.cli.output import usage_error
from tampu.django.backend import TampuBackend
from tampu.django.running import DjangoApp
from tampu.django.tasks_api import task_backends
from tampu.errors import OptionError

if not apps.ready and (settings.configured or ENVIRONMENT_VARIABLE in os.environ):
    django.setup()


def __getattr__(name: str) -> DjangoApp:
    """The app of the backend with this alias."""
    if name.startswith("__"):
        raise AttributeError(name)
    if not apps.ready:
        example = f"Set {ENVIRONMENT_VARIABLE} to your settings, for example mysite.settings."
        raise usage_error(example)
    if name not in task_backends.settings:
        known = ", ".join(task_backends.settings)
        raise usage_error(f"TASKS has no {name!r}; it has {known}.")
    backend = task_backends[name]
    if not isinstance(backend, TampuBackend):
        problem = "its BACKEND is not tampu.django.TampuBackend"
        raise OptionError("backend", name, problem)
    _import_tasks()
    return backend.app


def _import_tasks() -> None:
    """Import the modules `tasks` of the installed apps: now, and not in the first jobs."""
    for each in apps.get_app_configs():
        if module_has_submodule(each.module, "tasks"):
            import_module(f"{each.name}.tasks")
