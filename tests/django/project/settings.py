"""The settings of the project; what differs between tests comes from the environment."""

import json
import os
from pathlib import Path

import django

from tampu import Backoff

_here = Path(os.environ["PROJECT_HOME"])
_given = json.loads(os.environ.get("PROJECT", "{}"))

SECRET_KEY = "only for tests"
DEBUG = _given.get("debug", False)
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
ROOT_URLCONF = "urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "tampu.django",
    "shop",
]
if "without" in _given:
    INSTALLED_APPS.remove(_given["without"])
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
_sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": _here / "db.sqlite3"}
_postgres = {
    "ENGINE": "django.db.backends.postgresql",
    "USER": "postgres",
    **_given.get("postgres", {}),
}
DATABASES = {"default": _postgres if "postgres" in _given else _sqlite}
DATABASES["default"]["CONN_MAX_AGE"] = _given.get("conn_max_age", 0)
TASKS = {
    "default": {
        "BACKEND": _given.get("backend", "tampu.django.TampuBackend"),
        "QUEUES": _given.get("queues", ["default", "emails"]),
        "OPTIONS": {
            "url": os.environ.get("SERVER"),
            "backoff": Backoff.fixed(0.01),
            **_given.get("options", {}),
        },
    }
}
TAMPU_DASHBOARD_URL = _given.get("dashboard", "/jobs/")
