"""What can be no task and no app is refused when it is made."""

from functools import partial
from typing import Any

import pytest

from tampu import (
    App,
    OptionError,
    Promoter,
    Queue,
    QueueEvents,
    SyncQueue,
    Worker,
)
from tampu.scheduler import RedisGuard, RedisStore

app = App()


@app.task
async def send(to: str) -> None: ...


class TestTasks:
    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ("emails", r"function='emails'.* options have names, as in @app.task\(queue="),
            (5, "Invalid function 5: must be a function"),
            (send, "function=<Task 'send'>.*is a task already; a schedule stands above its task"),
            (max, "function=<built-in function max>.*does not tell its parameters"),
        ],
    )
    def test_what_is_no_function_is_no_task(self, given: Any, sentence: str) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match=sentence):
            App().task(given)

    def test_a_method_is_no_task(self) -> None:
        class Sender:
            def send(self, to: str) -> str:
                return to

            @classmethod
            def share(cls, to: str) -> str:
                return to

        with pytest.raises(
            OptionError, match=r"Invalid parameter 'self'.*no object to call a method of"
        ):
            App().task(Sender.send)
        assert App().task(Sender().send).call("ada").arguments == {"to": "ada"}
        assert App().task(Sender.share).call("ada").arguments == {"to": "ada"}

    def test_a_generator_is_no_task(self) -> None:
        def several() -> Any:  # noqa: ANN401
            yield 1

        with pytest.raises(OptionError, match="must return, not yield"):
            App().task(several)


class TestApps:
    def test_options_are_checked_when_it_is_made(self) -> None:
        wrong: list[dict[str, Any]] = [
            {"max_lenn": 1},
            {"max_len": 0},
            {"lifespan": 5},
            {"default_queue": ""},
            {"default_queue": None},
            {"credentials": "secret"},
        ]
        for options in wrong:
            with pytest.raises(OptionError, match=f"^{next(iter(options))}="):
                App(**options)

    def test_a_url_that_cannot_be_is_refused_by_all_who_take_one(self) -> None:
        takers: list[Any] = [App, *(partial(kind, "a") for kind in (Queue, SyncQueue, QueueEvents))]
        takers += [partial(Worker, "a", print), partial(Promoter, "a"), RedisStore, RedisGuard]
        for taker in takers:
            for wrong in ("localhost:6379", "shop", 6379):
                with pytest.raises(OptionError, match=r"^Invalid url "):
                    taker(wrong)

    def test_a_lifespan_must_be_a_context_manager(self) -> None:
        async def lifespan(app: App) -> Any:  # noqa: ANN401
            yield app

        async def awaited(app: App) -> None: ...

        for given in (lifespan, awaited):
            with pytest.raises(OptionError, match="@asynccontextmanager"):
                App(lifespan=given)  # type: ignore[arg-type]

    def test_options_of_its_workers_are_checked(self) -> None:
        for wrong in ({"store_result": True}, {"attempts": 0}, ["attempts"], {"raw": True}):
            with pytest.raises(OptionError, match=r"store_result|attempts|worker|raw"):
                App(worker=wrong)  # type: ignore[arg-type]
