"""Fan-out: one job starts many others and combines their results.

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
    """What was counted. Arguments and results may be dataclasses."""

    chapters: int
    words: int
    longest: int


@app.task(queue="chapters")
def count_words(text: str) -> int:
    """A plain function: it runs in a thread, so it may block."""
    return len(text.split())


@app.task
async def count_book(chapters: list[str]) -> Count:
    """Start a job for each chapter, and wait for all of them.

    The chapters have their own queue, and so their own slots. With a shared queue, jobs that wait
    could take every slot and leave none for the chapters.
    """
    jobs = await count_words.enqueue_many([count_words.call(text) for text in chapters])
    counts = await asyncio.gather(*(job.result(timeout=10) for job in jobs))
    return Count(len(counts), sum(counts), max(counts))


async def main() -> None:
    book = ["call me what you", "the end", "or not yet"]
    async with app, AppWorker(app, {"books": 2, "chapters": 8}):
        job = await count_book.enqueue(book)
        found = await job.result(timeout=20)
        print(
            f"{found.chapters} chapters, {found.words} words, the longest has {found.longest}",
        )
        print("chapter 2 alone:", await (await count_words.enqueue(book[1])).result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
