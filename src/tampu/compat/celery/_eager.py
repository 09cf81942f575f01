"""The result of a task that ran at once, in this process."""

from typing import Any


class EagerResult:
    """The result of a task that ran at once."""

    def __init__(
        self,
        id: str,
        ret_value: object,
        state: str,
        traceback: str | None = None,
        name: str | None = None,
    ) -> None:
        self.id, self.result, self.state = id, ret_value, state
        self.traceback, self.name = traceback, name

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"

    @property
    def task_id(self) -> str:
        """The id."""
        return self.id

    @property
    def status(self) -> str:
        """The state."""
        return self.state

    @property
    def info(self) -> object:
        """The value or the error."""
        return self.result

    def ready(self) -> bool:
        """True."""
        return True

    def successful(self) -> bool:
        """Whether it has ended without an error."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether it has failed."""
        return self.state == "FAILURE"

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        **options: object,
    ) -> Any:
        """The value; raises the error that the task raised."""
        del timeout, options
        if isinstance(self.result, Exception) and propagate and self.state == "FAILURE":
            raise self.result
        return self.result

    wait = get

    def revoke(self, *args: object, **options: object) -> None:
        """Do nothing: it has ended."""
        del args, options

    def forget(self) -> None:
        """Do nothing: nothing is stored."""
