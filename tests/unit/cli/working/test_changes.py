"""Which files count as changed, and where they are looked for."""

import os
from pathlib import Path

import pytest

from tampu.cli.working.changes import Changes, directory_of


def test_new_changed_and_removed_python_files_are_seen_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    kept, gone = tmp_path / "kept.py", tmp_path / "sub" / "gone.py"
    kept.write_text("1")
    gone.write_text("1")
    changes = Changes(tmp_path)
    assert changes.look() == []
    new = tmp_path / "sub" / "new.py"
    new.write_text("1")
    gone.unlink()
    os.utime(kept, ns=(1, 1))
    assert changes.look() == sorted([kept, gone, new])
    assert changes.look() == []


def test_what_is_no_code_of_the_user_is_left_out(tmp_path: Path) -> None:
    for folder in (".hidden", "__pycache__", "node_modules", "env"):
        (tmp_path / folder).mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    changes = Changes(tmp_path)
    for folder in (".hidden", "__pycache__", "node_modules", "env"):
        (tmp_path / folder / "x.py").touch()
    (tmp_path / "notes.txt").touch()
    assert changes.look() == []


def test_the_directory_is_where_the_top_of_the_app_stands(
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


def test_of_an_installed_package_it_is_the_package_itself() -> None:
    assert directory_of("msgspec:app").name == "msgspec"
