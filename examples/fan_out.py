"""Fan-out: one job becomes many, and their results are put together.

It prints:

    3 chapters, 9 words, the longest has 4
    chapter 2 alone: 2
"""

import asyncio
from dataclasses import dataclass

from tampu import App, AppWorker

app = App(default_queue="books")


@dataclass
class Count:
    """Arguments and results may be dataclasses; they arrive as such."""

    chapters: int
    words: int
    longest: int


@app.task(queue="chapters")
def count_words(text: str) -> int:
    """A plain function: it runs in a thread and may block."""
    return len(text.split())


@app.task
async def count_book(chapters: list[str]) -> Count:
    """Hand the chapters out, and wait for all of them.

    They have a queue of their own, and so slots of their own: jobs that wait for others never
    take up the slots that those others need.
    """
    jobs = await count_words.enqueue_many([count_words.call(text) for text in chapters])
    counts = await asyncio.gather(*(job.result(timeout=10) for job in jobs))
    return Count(len(counts), sum(counts), max(counts))


async def main() -> None:
    book = ["call me what you", "the end", "or not yet"]
    async with app, AppWorker(app, {"books": 2, "chapters": 8}, store_results=True):
        job = await count_book.enqueue(book)
        found = await job.result(timeout=20)
        print(
            f"{found.chapters} chapters, {found.words} words, the longest has {found.longest}",
        )
        print("chapter 2 alone:", await (await count_words.enqueue(book[1])).result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
