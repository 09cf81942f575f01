"""A program to try the image and the compose file with. Put your own in its place."""

from tampu import App, Every

app = App()


@app.task
async def add(a: int, b: int = 1) -> int:
    """Add two numbers: tampu enqueue shop:app add -a a=2."""
    return a + b


@app.schedule(Every("1m"), key="count")
@app.task
async def count() -> None:
    """Runs each minute."""
