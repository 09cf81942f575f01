"""The signals of Celery that programs use most: functions that are called at certain moments."""

import logging
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias
from weakref import ReferenceType, WeakMethod, ref

from tampu.compat.celery._absent import refuse
from tampu.compat.celery.exceptions import NotSupported
from tampu.errors import text_of

logger = logging.getLogger(__name__)
Receiver: TypeAlias = Callable[..., object]

__all__ = [
    "Signal",
    "task_failure",
    "task_postrun",
    "task_prerun",
    "task_retry",
    "task_success",
    "worker_init",
    "worker_process_init",
    "worker_process_shutdown",
    "worker_ready",
    "worker_shutdown",
]


class Signal:
    """Receivers that are called with the sender and keyword arguments, one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._receivers: list[tuple[object, object, Callable[[], Receiver | None]]] = []

    def __repr__(self) -> str:
        return f"<Signal: {self.name}>"

    @property
    def receivers(self) -> list[Receiver]:
        """The functions that are connected."""
        found = [get() for _, _, get in self._receivers]
        return [each for each in found if each is not None]

    def connect(self, *args: Any, **options: Any) -> Any:
        """Call a function when the signal is sent; `sender` limits that to one sender.

        Also a decorator, with and without arguments. A function that nothing else refers to is
        forgotten unless you pass `weak=False`.
        """
        if args and callable(args[0]):
            return self._connect(args[0], *args[1:], **options)
        return lambda receiver: self._connect(receiver, *args, **options)

    def disconnect(
        self, receiver: Receiver | None = None, sender: object = None, dispatch_uid: object = None
    ) -> bool:
        """Do not call it any more; whether it was connected."""
        key = dispatch_uid if dispatch_uid is not None else receiver
        kept = [each for each in self._receivers if each[:2] != (key, sender)]
        found, self._receivers = len(kept) != len(self._receivers), kept
        return found

    def send(self, sender: object, **named: object) -> list[tuple[Receiver, object]]:
        """Call the receivers; an error of one of them is logged and returned."""
        answers: list[tuple[Receiver, object]] = []
        for _, wanted, get in tuple(self._receivers):
            receiver = get()
            if receiver is None or (wanted is not None and wanted != sender):
                continue
            try:
                answer: object = receiver(signal=self, sender=sender, **named)
            except Exception as error:
                facts = (self.name, receiver, type(error).__name__, text_of(error))
                logger.exception("signal %s: receiver %r raised %s: %s", *facts)
                answer = error
            answers.append((receiver, answer))
        return answers

    def _connect(
        self,
        receiver: Receiver,
        sender: object = None,
        weak: bool = True,
        dispatch_uid: object = None,
        retry: bool = False,
    ) -> Receiver:
        if retry:
            advice = "a receiver that fails is logged; repeat what may fail inside of it"
            raise NotSupported(f"{self.name}.connect(retry=True)", advice)
        key = dispatch_uid if dispatch_uid is not None else receiver
        self.disconnect(receiver, sender, dispatch_uid)
        self._receivers.append((key, sender, _getter(receiver) if weak else lambda: receiver))
        return receiver


def _getter(receiver: Receiver) -> Callable[[], Receiver | None]:
    if hasattr(receiver, "__self__"):
        made: ReferenceType[Any] = WeakMethod(receiver)
        return made
    return ref(receiver)


task_prerun: Final = Signal("task_prerun")
task_postrun: Final = Signal("task_postrun")
task_success: Final = Signal("task_success")
task_failure: Final = Signal("task_failure")
task_retry: Final = Signal("task_retry")
worker_init: Final = Signal("worker_init")
worker_ready: Final = Signal("worker_ready")
worker_shutdown: Final = Signal("worker_shutdown")
worker_process_init: Final = Signal("worker_process_init")
worker_process_shutdown: Final = Signal("worker_process_shutdown")


def __getattr__(name: str) -> NoReturn:
    refuse("signals", name)
