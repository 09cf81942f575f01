"""tampu in Django projects: a backend for Django's tasks, and what keeps database connections well.

It needs the extra `tampu[django]`. Add `"tampu.django"` to `INSTALLED_APPS`.
"""

from tampu.errors import MissingExtra

try:
    import django as _django

    if _django.VERSION < (6, 0):
        import django_tasks as _django_tasks  # noqa: F401 - is it there?
except ModuleNotFoundError as missing:
    raise MissingExtra("django", missing.name or "django") from missing

from tampu.django.backend import TampuBackend
from tampu.django.database import clean_connections
from tampu.django.task import TampuTask

__all__ = ["TampuBackend", "TampuTask", "clean_connections"]

del _django
