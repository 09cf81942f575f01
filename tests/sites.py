"""A documentation site of a few pages, built as `make docs` builds the whole one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers import ROOT
from tools.docs_site import STYLE, settings


def build_site(root: Path, pages: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Build the pages, given by name without `.md`, in `root/site`."""
    docs = root / "docs"
    docs.mkdir()
    for name, text in pages.items():
        (docs / f"{name}.md").write_text(text, "utf-8")
    shutil.copyfile(STYLE, docs / STYLE.name)
    source = settings([{name: f"{name}.md"} for name in pages]).replace(
        '"../src"', f'"{ROOT / "src"}"'
    )
    (root / "zensical.toml").write_text(source, "utf-8")
    return subprocess.run(
        [
            Path(sys.executable).with_name("zensical"),
            *("build", "--strict", "--clean", "--config-file", root / "zensical.toml"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
