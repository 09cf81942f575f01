"""`app.control`: only `revoke` is supported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from tampu.compat.celery._absent import refuse

if TYPE_CHECKING:
    from tampu.compat.celery.app import Celery


class Control:
    """`app.control`: only `revoke` is supported."""

    def __init__(self, app: Celery) -> None:
        self.app = app

    def __getattr__(self, name: str) -> NoReturn:
        refuse("app.control", name)

    def revoke(
        self,
        task_id: str | Iterable[str],
        terminate: bool = False,
        **options: Any,
    ) -> None:
        """Revoke jobs by their ids; see `AsyncResult.revoke`."""
        for each in [task_id] if isinstance(task_id, str) else task_id:
            self.app.AsyncResult(each).revoke(terminate=terminate, **options)
