"""From handlers to plans: each gets its runner, and what it leaves open is the worker's."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tampu.consumer.handler import Handler, Plan, Runner, timeout_s_of
from tampu.consumer.options import WorkerSettings
from tampu.consumer.runner import LoopRunner, ProcessRunner, ThreadRunner
from tampu.functions import is_async


def make_plans(
    handlers: Mapping[str | None, Handler], settings: WorkerSettings
) -> dict[str | None, Plan]:
    """How the jobs of each name are run; starts no thread and no process yet."""
    threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="tampu-handler")
    return {
        name: Plan(
            _runner(handler, settings, threads),
            handler.attempts or settings.attempts,
            handler.backoff or settings.backoff,
            timeout_s_of(settings.timeout if handler.timeout is None else handler.timeout),
        )
        for name, handler in handlers.items()
    }


def _runner(handler: Handler, settings: WorkerSettings, threads: ThreadPoolExecutor) -> Runner:
    if (handler.isolation or settings.isolation) == "process":
        return ProcessRunner(handler.function, limit=settings.concurrency)
    if is_async(handler.function):
        return LoopRunner(handler.function)
    return ThreadRunner(handler.function, threads)
