"""As in Celery: only `log` is supported."""
