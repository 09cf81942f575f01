"""What follows the end of a worker process, and which files count as changed."""

import os
import signal
from pathlib import Path

import pytest

from tampu.cli.signals import ExitReason
from tampu.cli.worker.supervisor import (
    HEALTHY_S,
    FileChanges,
    NextStep,
    ProcessSlot,
    directory_of,
    next_step,
)


@pytest.mark.parametrize(
    ("code", "reason", "step", "step_with_reload"),
    [
        (0, ExitReason.EMPTY, NextStep.LEAVE, NextStep.LEAVE),
        (0, ExitReason.DRAINED, NextStep.LEAVE, NextStep.LEAVE),
        (1, ExitReason.DRAINED, NextStep.RESTART_AFTER_PAUSE, NextStep.WAIT_FOR_CHANGE),
        (1, ExitReason.EMPTY, NextStep.RESTART_AFTER_PAUSE, NextStep.WAIT_FOR_CHANGE),
        (0, ExitReason.RECYCLED, NextStep.RESTART_NOW, NextStep.RESTART_NOW),
        (-signal.SIGKILL, None, NextStep.RESTART_AFTER_PAUSE, NextStep.WAIT_FOR_CHANGE),
        (2, None, NextStep.RESTART_AFTER_PAUSE, NextStep.WAIT_FOR_CHANGE),
        # Someone else told it to stop: it is still needed.
        (0, ExitReason.TOLD, NextStep.RESTART_AFTER_PAUSE, NextStep.WAIT_FOR_CHANGE),
    ],
)
def test_each_end_has_its_next_step(
    code: int, reason: ExitReason | None, step: NextStep, step_with_reload: NextStep
) -> None:
    assert next_step(code, reason, reload=False) is step
    assert next_step(code, reason, reload=True) is step_with_reload


def test_pauses_grow_with_each_failure_until_a_process_has_run_for_a_while() -> None:
    slot = ProcessSlot()
    pauses = [slot.pause_s(1.0) for _ in range(12)]
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses[-1] == 30.0
    assert slot.pause_s(HEALTHY_S) == 0.25
    assert slot.pause_s(1.0) == 0.5
    slot.forget_failures()
    assert slot.pause_s(1.0) == 0.25


def test_added_changed_and_removed_python_files_are_found_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    kept, removed = tmp_path / "kept.py", tmp_path / "sub" / "removed.py"
    kept.write_text("1")
    removed.write_text("1")
    changes = FileChanges(tmp_path)
    assert changes.check() == []
    new = tmp_path / "sub" / "new.py"
    new.write_text("1")
    removed.unlink()
    os.utime(kept, ns=(1, 1))
    assert changes.check() == sorted([kept, removed, new])
    assert changes.check() == []


def test_files_that_are_not_the_users_code_are_left_out(tmp_path: Path) -> None:
    for folder in (".hidden", "__pycache__", "node_modules", "env"):
        (tmp_path / folder).mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    changes = FileChanges(tmp_path)
    for folder in (".hidden", "__pycache__", "node_modules", "env"):
        (tmp_path / folder / "x.py").touch()
    (tmp_path / "notes.txt").touch()
    assert changes.check() == []


def test_the_directory_is_that_of_the_apps_top_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "src" / "single.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "src")
    assert directory_of("shop.deep.inside:app") == tmp_path / "src"
    assert directory_of("single") == tmp_path / "src"
    assert directory_of("not_there:app") == tmp_path


def test_the_directory_of_an_installed_package_is_the_package_itself() -> None:
    assert directory_of("msgspec:app").name == "msgspec"
