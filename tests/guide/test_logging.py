"""The recipe for structlog on the page about logs, in a real `tampu worker`."""

import json
from pathlib import Path

from tampu import Queue
from tests.contract.worker_command import run_worker
from tests.guide.pages import GUIDE, block_of, blocks_of
from tests.servers import RunningServer

PAGE = GUIDE / "logging.md"
RECIPE = block_of(PAGE, "structlog", "python").split("shop.addHandler", 1)[0]
APP = """\
from tampu import App

{recipe}
logging.basicConfig(handlers=[handler], level="INFO", force=True)
app = App()


@app.task
async def add(a: int) -> None:
    structlog.get_logger("shop").info("adding", a=a)
    logging.getLogger("other").info("added", extra={{"total": a}})
"""


async def test_in_a_worker_every_line_is_json_and_only_those_of_jobs_name_one(
    running: RunningServer, tmp_path: Path
) -> None:
    (notes, *_) = blocks_of(PAGE)
    (tmp_path / "notes.py").write_text(notes.source)
    (tmp_path / "shop.py").write_text(APP.format(recipe=RECIPE))
    async with Queue("default", running.url) as queue:
        await queue.add("add", {"a": 7}, job_id="j")
    with run_worker(running, tmp_path, "--burst", "--json") as worker:
        assert worker.wait() == 0
        assert worker.err == ""
        started, *logged = [json.loads(line) for line in worker.out.splitlines()]
    assert started["tasks"] == ["add"]
    job = {"attempt": 1, "job_id": "j", "job_name": "add", "queue": "default", "level": "info"}
    ours = {each["event"]: each for each in logged}
    assert ours["adding"] == {**job, "event": "adding", "a": 7}
    assert ours["added"] == {**job, "event": "added", "total": 7}
    assert ours["stopped"] == {"event": "stopped", "level": "info"}
