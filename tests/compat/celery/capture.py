"""What the real Celery does, captured for the tests: writes `tests/golden/celery.json`.

`python -m tests.compat.celery.capture PYTHON`, where PYTHON has celery[redis]==5.7.0. Needs a
server of the tests; Celery's worker runs beside it.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.servers import BACKENDS, ROOT, RunningServer

GOLDEN: Final = ROOT / "tests" / "golden" / "celery.json"
PROGRAM: Final = Path(__file__).parent
_QUEUES: Final = "celery,emails"
_LIMIT_S: Final = 300
_NAMES: Final = """
import celery, celery.exceptions, celery.schedules, celery.signals, json
from celery.app.control import Control
from celery.app.defaults import NAMESPACES, flatten
from celery.result import AsyncResult, GroupResult

app = celery.Celery("x", broker="memory://")

@app.task
def task(): ...

def names(thing):
    return sorted(name for name in dir(thing) if not name.startswith("_"))

print(json.dumps({
    "app": names(app),
    "Task": names(task),
    "AsyncResult": names(AsyncResult("x", app=app)),
    "GroupResult": names(GroupResult("x", [], app=app)),
    "signature": sorted(set(names(task.s())) - set(dir(dict))),
    "app.control": names(Control(app)),
    "signals": sorted(celery.signals.__all__),
    "settings": sorted(name for name, _ in flatten(NAMESPACES)),
}))
"""


def main(python: str) -> None:
    """Capture what a program prints, and the public names."""
    names = subprocess.run([python, "-c", _NAMES], capture_output=True, text=True, check=True)
    found = {
        "source": "celery 5.7.0 with Redis as its broker",
        "names": json.loads(names.stdout),
        "program": _run_program(python),
    }
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def _run_program(python: str) -> Any:
    binary = BACKENDS[0].find()
    assert binary is not None
    with TemporaryDirectory() as folder, RunningServer(binary) as server:
        for name in ("shop.py", "client.py"):
            Path(folder, name).write_text((PROGRAM / name).read_text("utf-8"), "utf-8")
        env = os.environ | {"BROKER_URL": server.url}
        worker = subprocess.Popen(
            [python, "-m", "celery", "-A", "shop", "worker", "-c", "2", "-Q", _QUEUES],
            cwd=folder,
            env=env,
        )
        try:
            done = subprocess.run(
                [python, "client.py"],
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                timeout=_LIMIT_S,
                check=True,
            )
            return json.loads(done.stdout)
        finally:
            worker.terminate()
            worker.wait(_LIMIT_S)


if __name__ == "__main__":
    begun = time.monotonic()
    main(sys.argv[1])
    print(f"{GOLDEN} in {time.monotonic() - begun:.0f} s")  # noqa: T201
