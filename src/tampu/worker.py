"""The worker: runs the jobs of a queue."""

from functools import partial
from typing import Unpack

from tampu.consumer.engine import Engine
from tampu.consumer.handler import Handlers, handlers_by_name
from tampu.consumer.options import WorkerHealth, WorkerOptions, WorkerSettings
from tampu.consumer.queue_config import QueueConfig, new_consumer
from tampu.consumer.runners.local import make_plans
from tampu.metrics.alerts import bind_alerts
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, check_target
from tampu.util.clock import Duration, to_s
from tampu.util.lifecycle import Lifetime, Runnable
from tampu.util.options import parse_options
from tampu.wire.keys import QueueKeys
from tampu.wire.names import warn_if_reserved


class Worker(Runnable):
    """Runs the jobs of one queue with a handler, or with a handler for each name.

    `await worker.run()` works until `stop()`; `async with worker:` works inside the block. A worker
    can be started only once.
    """

    def __init__(
        self,
        queue: str,
        handler: Handlers,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        check_target(url, credentials)
        settings = parse_options(WorkerSettings, "Worker", options)
        bind_alerts(settings.alerts, queue)  # refuses keys that are the same on this queue
        self._grace = settings.grace
        warn_if_reserved(queue)
        self._config = QueueConfig(
            QueueKeys(queue),
            new_consumer(settings.name),
            settings,
            plans=make_plans(handlers_by_name(handler), settings),
        )
        self._life = Lifetime(
            "worker",
            partial(Engine.open, [self._config], url, credentials, on_drain=self._drain),
            Engine.close,
            hurry=Engine.hurry,
        )

    def __repr__(self) -> str:
        return f"<Worker {self.id} of {self._config.keys.name!r}>"

    @property
    def id(self) -> str:
        """The name of its consumer: no other worker has it."""
        return self._config.consumer.decode()

    @property
    def health(self) -> WorkerHealth | None:
        """The health of the worker now; None before it has started."""
        engine = self._life.resource
        return None if engine is None else engine.health

    def _drain(self) -> None:
        self._life.begin_stop(to_s("grace", self._grace))

    async def stop(self, grace: Duration | None = None) -> None:
        """Read nothing more, release jobs that have not started, give running handlers `grace`.

        Returns when all is settled and every connection is closed. May be called again: the grace
        that ends first counts.
        """
        await self._life.stop(to_s("grace", self._grace if grace is None else grace))
