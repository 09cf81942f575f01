"""Enqueues the tasks, or waits for them: `program.py enqueue COUNT` or `program.py wait ID ...`."""

import json
import sys
import time

import django

django.setup()

from django.tasks import default_task_backend
from work.tasks import nothing


def enqueue(count: int) -> None:
    """Print the ids of the results, and how long it took."""
    nothing.enqueue(-1)  # connects
    began = time.perf_counter()
    ids = [nothing.enqueue(number).id for number in range(count)]
    print(json.dumps({"seconds": time.perf_counter() - began, "ids": list(map(str, ids))}))


def wait(ids: list[str]) -> None:
    """Print how long it took from the start of the first task to the end of the last one."""
    left, ended = list(ids), []
    while left:
        time.sleep(0.2)
        while left and (result := default_task_backend.get_result(left[0])).is_finished:
            ended.append(result)
            left.pop(0)
    assert all(each.status.value == "SUCCESSFUL" for each in ended)
    first = min(each.started_at for each in ended)
    print((max(each.finished_at for each in ended) - first).total_seconds())


if __name__ == "__main__":
    if sys.argv[1] == "enqueue":
        enqueue(int(sys.argv[2]))
    else:
        wait(sys.argv[2:])
