"""The project that every backend runs in."""

import os

RIVAL = os.environ["RIVAL"]
PORT = int(os.environ["PORT"])
HOST, NAME = os.environ["POSTGRES"].split()

SECRET_KEY = "only for benchmarks"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": HOST,
        "NAME": NAME,
        "USER": "postgres",
        "CONN_MAX_AGE": 600,
    }
}
INSTALLED_APPS = ["work"]
HUEY = {
    "name": "work",
    "connection": {"host": "127.0.0.1", "port": PORT},
    "immediate": False,
    "results": True,
}
BACKENDS = {
    "tampu": ("tampu.django.TampuBackend", "tampu.django", {"url": f"redis://127.0.0.1:{PORT}"}),
    "huey": ("huey.contrib.djhuey.tasks_backend.HueyBackend", "huey.contrib.djhuey", {}),
    "db": ("django_tasks_db.DatabaseBackend", "django_tasks_db", {}),
    "redis": (
        "django_tasks_redis.RedisTaskBackend",
        "django_tasks_redis",
        {"REDIS_URL": f"redis://127.0.0.1:{PORT}/0"},
    ),
}
BACKEND, APP, OPTIONS = BACKENDS[RIVAL]
INSTALLED_APPS.append(APP)
TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": OPTIONS}}
LOGGING = {"version": 1, "loggers": {"django.tasks": {"level": "ERROR"}}}
