"""Workers of an app: what is checked when one is created."""

from typing import Any

import pytest

from tampu import App, AppWorker, Depends, OptionError

app = App("redis://127.0.0.1:1")


@app.task
async def send(to: str, copies: int = 1) -> int:
    """Send it."""
    return len(to) * copies


@app.task(queue="sums", name="sum", attempts=2)
def add(a: int, b: int) -> int:
    return a + b


def test_an_app_needs_a_task() -> None:
    with pytest.raises(OptionError, match=r"it has no tasks; declare them with @app\.task"):
        AppWorker(App())
    with pytest.raises(OptionError, match="Invalid app 'shop:app': expected an App"):
        AppWorker("shop:app")  # type: ignore[arg-type]


@pytest.mark.parametrize("queues", [{}, {"a": 0}, {"a b": 1}, ["a"]])
def test_queues_are_names_with_their_concurrency(queues: Any) -> None:  # noqa: ANN401
    with pytest.raises(OptionError, match="queue"):
        AppWorker(app, queues)


def test_workers_share_options_with_the_queues() -> None:
    local = App(max_payload=5_000_000, group="blue", events=True, worker={"attempts": 2})
    results = {"store_results": True, "result_ttl": "10m"}
    own = {"max_payload": 5_000_000, "group": "blue", "attempts": 2}
    assert local.worker == results | own
    assert App(max_payload=5, worker={"max_payload": 7}).worker == results | {"max_payload": 7}


def test_the_default_is_all_queues_of_the_tasks() -> None:
    assert dict(AppWorker(app, concurrency=7).queues) == {"default": 7, "sums": 7}
    assert dict(AppWorker(app, {"sums": 3}).queues) == {"sums": 3}


def test_a_dependency_of_scope_app_does_not_exist_in_child_processes() -> None:
    local = App()

    @local.task(isolation="process")
    def task(db: str = Depends(dict, scope="app")) -> None: ...

    with pytest.raises(
        OptionError, match="not possible for task 'task': its dependency dict has scope"
    ):
        AppWorker(local)


def test_a_task_in_a_child_process_must_be_importable() -> None:
    local = App()

    @local.task(isolation="process")
    def task() -> None: ...

    with pytest.raises(OptionError, match="importable by a child process") as raised:
        AppWorker(local)
    name = f"{__name__}.test_a_task_in_a_child_process_must_be_importable.<locals>.task"
    assert str(raised.value).startswith(f"Invalid handler {name}: ")
