"""Files stay under 400 lines and functions under 50, without a list of exceptions."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("src", "tests", "benchmarks", "tools", "examples")
LONGEST_FILE = 400
LONGEST_FUNCTION = 50


def complaints(path: Path) -> Iterator[str]:
    """What is too long in one file."""
    text = path.read_text("utf-8")
    lines = text.count("\n")
    if lines > LONGEST_FILE:
        yield f"{path}: {lines} lines, at most {LONGEST_FILE}"
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    yield f"{path}:{node.lineno}: {node.name} has {length} lines"


def main() -> int:
    """Say what is too long."""
    files = [p for f in FOLDERS for s in ("*.py", "*.lua") for p in sorted(Path(f).rglob(s))]
    found = [complaint for path in files for complaint in complaints(path)]
    print("\n".join(found) or f"sizes: {len(files)} files within bounds")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
