"""Many images, joined by one job: `python examples/images.py 100000` makes so many, default 300.

The last job does not get all results at once: it reads them page by page. One image in a hundred
may fail.

It prints:

    297 of 300 images are smaller, by 14850 bytes
"""

import asyncio
import logging
import sys

from tampu import App, AppWorker, Results

logger = logging.getLogger(__name__)
app = App(default_queue="images")


@app.task(attempts=1)
async def shrink(number: int) -> int:
    """How many bytes it has saved."""
    if number % 100 == 99:
        raise ValueError("not an image")
    return 50


@app.task
async def add_up(saved: Results[int], images: int) -> str:
    """Gets a reference to the results, and reads them one after the other."""
    count = total = 0
    async for each in saved:
        count, total = count + 1, total + each
    return f"{count} of {images} images are smaller, by {total} bytes"


async def main(images: int) -> None:
    flow = app.flow("shrink")
    shrunk = flow.map(shrink, range(images)).tolerate(0.01)
    summary = flow.add(add_up, shrunk.results, images=images)
    async with app, AppWorker(app):
        run = await flow.start(result=summary)
        async for number, saved in run.completed(shrunk):
            logger.debug("image %d has saved %d bytes", number, saved)  # as they come
        print(await run.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
