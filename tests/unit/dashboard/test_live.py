"""Live updates: who gets what, and when nobody looks."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tampu.dashboard.access import Access
from tampu.dashboard.live import Live, WatchedPage
from tampu.errors import OptionError, ServerUnreachable
from tests.waiting import wait_until

WATCH = WatchedPage("", (), Access.full())
OTHER = WatchedPage("queue", (("name", "emails"),), Access.full())


class Pages:
    """Renders what a test puts into it, and counts how often."""

    def __init__(self) -> None:
        self.regions: dict[str, str] = {"tiles": "<b>1</b>", "charts": "<i>1</i>"}
        self.error: Exception | None = None
        self.rendered: list[WatchedPage] = []

    async def render(self, watch: WatchedPage) -> Mapping[str, str]:
        self.rendered.append(watch)
        if self.error is not None:
            raise self.error
        return dict(self.regions)


class Stream:
    """One open page."""

    def __init__(self, live: Live, watch: WatchedPage = WATCH) -> None:
        self._events = live.stream(watch)

    async def next(self) -> tuple[str, Any]:
        """The next event, as its kind and its data."""
        async with asyncio.timeout(20):
            while True:
                text = await anext(self._events)
                if text.startswith("event: "):
                    kind, data = text.removesuffix("\n\n").split("\n")
                    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    async def close(self) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]


@pytest.fixture
async def pages() -> Pages:
    return Pages()


@pytest.fixture
async def live(pages: Pages) -> AsyncIterator[Live]:
    made = Live(pages.render)
    yield made
    await made.close()


async def test_all_regions_come_first_and_then_those_that_changed(live: Live, pages: Pages) -> None:
    stream = Stream(live)
    assert await stream.next() == ("region", {"name": "tiles", "html": "<b>1</b>"})
    assert await stream.next() == ("region", {"name": "charts", "html": "<i>1</i>"})
    pages.regions["charts"] = "<i>two\nlines\u2028</i>"
    live.look_now()
    assert await stream.next() == ("region", {"name": "charts", "html": "<i>two\nlines\u2028</i>"})
    await stream.close()


async def test_it_looks_again_by_itself(live: Live, pages: Pages) -> None:
    stream = Stream(live)
    await stream.next()
    await stream.next()
    pages.regions["tiles"] = "<b>2</b>"
    assert await stream.next() == ("region", {"name": "tiles", "html": "<b>2</b>"})
    await stream.close()


async def test_visitors_of_the_same_page_share_what_is_rendered(live: Live, pages: Pages) -> None:
    streams = [Stream(live) for _ in range(20)]
    for stream in streams:
        await stream.next()
        await stream.next()
    rendered = len(pages.rendered)
    assert rendered < 10
    pages.regions["tiles"] = "<b>2</b>"
    live.look_now()
    for stream in streams:
        assert await stream.next() == ("region", {"name": "tiles", "html": "<b>2</b>"})
        await stream.close()
    assert len(pages.rendered) < rendered + 10


async def test_other_pages_and_other_visitors_are_rendered_for_themselves(
    live: Live, pages: Pages
) -> None:
    reader = WatchedPage("", (), Access.read())
    streams = [Stream(live, watch) for watch in (WATCH, OTHER, reader)]
    for stream in streams:
        await stream.next()
        await stream.close()
    assert set(pages.rendered) == {WATCH, OTHER, reader}


async def test_nothing_is_rendered_while_nobody_looks(live: Live) -> None:
    assert not live.is_polling
    stream = Stream(live)
    await stream.next()
    assert live.is_polling
    await stream.close()
    live.look_now()
    await wait_until(lambda: not live.is_polling, within=60, sentence="the poller ends")
    again = Stream(live)
    assert (await again.next())[0] == "region"
    await again.close()


async def test_a_server_that_is_away_is_told_once_and_its_return_too(
    live: Live, pages: Pages
) -> None:
    stream = Stream(live)
    await stream.next()
    await stream.next()
    pages.error = ServerUnreachable("redis://x", "refused")
    live.look_now()
    kind, data = await stream.next()
    assert kind == "away"
    assert "Cannot connect to redis://x" in data["sentence"]
    late = Stream(live)  # comes while the server is away
    kinds = [(await late.next())[0] for _ in range(3)]
    assert kinds == ["region", "region", "away"]
    pages.error = None
    live.look_now()
    assert await stream.next() == ("back", {})
    await stream.close()
    await late.close()


@pytest.mark.parametrize("error", [OptionError("x", 1, "wrong"), ZeroDivisionError()])
async def test_a_page_that_fails_does_not_stop_the_others(
    live: Live, pages: Pages, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(live)
    await stream.next()
    await stream.next()
    pages.error = error
    live.look_now()
    seen = len(pages.rendered)
    await wait_until(lambda: len(pages.rendered) > seen, within=60, sentence="it is tried again")
    if isinstance(error, OptionError):
        assert await stream.next() == ("gone", {"sentence": "Invalid x 1: wrong."})
    else:
        assert "cannot be updated" in caplog.text
    pages.error, pages.regions["tiles"] = None, "<b>2</b>"
    live.look_now()
    kind = ""
    while kind != "region":
        kind, _ = await stream.next()
    await stream.close()


async def test_closing_ends_all_streams(live: Live) -> None:
    stream = Stream(live)
    await stream.next()
    await stream.next()
    waiting = asyncio.create_task(stream.next())
    await asyncio.sleep(0)
    await live.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert not live.is_polling


async def test_a_browser_that_does_not_read_is_dropped(live: Live, pages: Pages) -> None:
    slow, quick = Stream(live), Stream(live)
    await slow.next()
    await quick.next()
    await quick.next()
    for number in range(80):
        pages.regions["tiles"] = f"<b>{number}</b>"
        live.look_now()
        await quick.next()
    with pytest.raises(StopAsyncIteration):
        for _ in range(100):
            await slow.next()
    await quick.close()
