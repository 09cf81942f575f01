"""`metrics`: all queues that the visitor may see, in the text format of Prometheus."""

from starlette.responses import PlainTextResponse, Response

from tampu.dashboard.page import Resource, View
from tampu.metrics.prometheus import CONTENT_TYPE


async def respond(view: View) -> Response:
    """The metrics as text."""
    text = await view.source.metrics(await view.queues())
    return PlainTextResponse(text, media_type=CONTENT_TYPE)


RESOURCES = (Resource(path="metrics", respond=respond),)
