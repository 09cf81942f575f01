"""What a view looks like in a terminal."""

from rich.console import Console, RenderableType


def print_view(view: RenderableType, width: int = 80) -> list[str]:
    """The lines of a view in a terminal of a width; none is wider."""
    console = Console(width=width, no_color=True, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(view)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(map(len, lines)) <= width
    return lines
