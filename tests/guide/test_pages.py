"""The code on each page runs as it stands there, and prints what the page says."""

import ast
import asyncio
import builtins
import inspect
import io
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.embedded import end_server
from tests.guide.pages import Block, blocks_of, name_of
from tests.servers import ROOT, RunningServer
from tools.docs_contents import pages

README = ROOT / "README.md"
BLOCKS_STAND_ALONE = {"logging.md"}
WITH_CODE = [page for page in pages() if page != README and blocks_of(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
async def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, running: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAMPU_URL", running.url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict[str, object] = {"__name__": "page", "__builtins__": builtins}
    for block in blocks_of(page):
        place = f"{name_of(page)}:{block.line}"
        if page.name in BLOCKS_STAND_ALONE:
            namespace = {"__name__": "page", "__builtins__": builtins}
        if block.module is not None:
            file = tmp_path / f"{block.module}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.source, "utf-8")
            monkeypatch.delitem(sys.modules, block.module.replace("/", "."), raising=False)
        else:
            printed = await _run(_compiled(block, page), namespace)
            assert printed == block.output, place
    left = [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}]
    assert left == [], "the page leaves something open"


def test_the_quickstart_runs_as_printed_on_the_embedded_server(tmp_path: Path) -> None:
    (block,) = blocks_of(README)
    (tmp_path / "quickstart.py").write_text(block.source, "utf-8")
    surroundings = {name: value for name, value in os.environ.items() if name != "TAMPU_URL"}
    try:
        done = subprocess.run(
            [sys.executable, "quickstart.py"],
            cwd=tmp_path,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        end_server(tmp_path / ".tampu")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == block.output


def _compiled(block: Block, page: Path) -> CodeType:
    """The block's code, with the line numbers that it has on its page."""
    source = "\n" * block.line + block.source
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    return code


async def _run(code: CodeType, namespace: dict[str, object]) -> str:
    """What the code prints; names that it binds stay in the namespace."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        running = FunctionType(code, namespace)()
        if inspect.iscoroutine(running):
            await asyncio.wait_for(running, timeout=40)
    return printed.getvalue()
