"""A crawler: a job for each link of a page, whose number is known only when the page is there.

It prints:

    /about has 2 words
    /news has 3 words
    /old cannot be read: LookupError
    2 pages, 5 words
"""

import asyncio

from tampu import App, AppWorker, NodeFailed, NodeOutcome, Ok

app = App(default_queue="crawler")
SITE = {"/": "/about /news /old", "/about": "about us", "/news": "nothing is new"}


@app.task
async def find_links(url: str) -> list[str]:
    """The links on a page."""
    return SITE[url].split()


@app.task(attempts=1)
async def count_words(url: str) -> tuple[str, int]:
    """How many words a page has."""
    if url not in SITE:
        raise LookupError(f"there is no page {url}")
    return url, len(SITE[url].split())


@app.task
async def add_up(pages: list[NodeOutcome[tuple[str, int]]]) -> str:
    """Runs when all pages have ended, also if some could not be read."""
    found = 0
    for page in pages:
        match page:
            case Ok((url, words)):
                print(f"{url} has {words} words")
                found += words
            case NodeFailed(error_type=error, message=message):
                print(f"{message.rpartition(' ')[2]} cannot be read: {error}")
    return f"{sum(isinstance(page, Ok) for page in pages)} pages, {found} words"


async def main() -> None:
    flow = app.flow("crawl")
    pages = flow.map(count_words, flow.add(find_links, "/"))
    summary = flow.add(add_up, pages.outcomes)
    async with app, AppWorker(app):
        run = await flow.start(result=summary)
        print(await run.result(timeout=20))


if __name__ == "__main__":
    asyncio.run(main())
