"""Checks that files have at most 400 lines and functions at most 50, without exceptions."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("src", "tests", "benchmarks", "tools", "examples")
LONGEST_FILE = 400
LONGEST_FUNCTION = 50


def find_problems(path: Path) -> Iterator[str]:
    """What is too long in a file."""
    text = path.read_text("utf-8")
    lines = text.count("\n")
    if lines > LONGEST_FILE:
        yield f"{path}: {lines} lines, at most {LONGEST_FILE}"
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    where = f"{path}:{node.lineno}: {node.name}"
                    yield f"{where} has {length} lines, at most {LONGEST_FUNCTION}"


def main() -> int:
    """Print what is too long."""
    files = [p for f in FOLDERS for s in ("*.py", "*.lua") for p in sorted(Path(f).rglob(s))]
    found = [problem for path in files for problem in find_problems(path)]
    print("\n".join(found) or f"sizes: {len(files)} files are ok")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
