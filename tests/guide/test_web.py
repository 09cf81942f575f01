"""The modules on the page about web frameworks serve what the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guide.pages import GUIDE, blocks_of
from tests.servers import RunningServer

ASK = {
    "letters": """
from litestar.testing import TestClient
from letters import web
with TestClient(web) as client:
    print(client.get("/welcome/ada").text)
""",
    "shop": """
import asyncio
from tampu import AppWorker
from shop import create_app, jobs
web = create_app()
job_id = web.test_client().post("/orders/7").json["id"]
async def run():
    async with jobs, AppWorker(jobs):
        return await jobs.queue().job(job_id).result(20)
print(asyncio.run(run()))
""",
}
ANSWERS = {"letters": "welcome, ada\n", "shop": "order 7 of Corner shop\n"}


@pytest.mark.parametrize("module", ASK)
def test_a_module_of_the_page_works(module: str, tmp_path: Path, running: RunningServer) -> None:
    (block,) = (block for block in blocks_of(GUIDE / "web.md") if block.module == module)
    (tmp_path / f"{module}.py").write_text(block.source, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", ASK[module]],
        cwd=tmp_path,
        env=os.environ | {"TAMPU_URL": running.url},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ANSWERS[module]), done.stderr
