"""Tasks of an app of tampu in the project."""

import os

from asgiref.sync import sync_to_async

from shop.tasks import ask_connection
from tampu import App
from tampu.django import clean_connections

app = App(os.environ["SERVER"], middleware=[clean_connections], worker={"concurrency": 10})


@app.task
def connection_of() -> list[int]:
    return ask_connection()


@app.task
async def connection_of_async() -> list[int]:
    return await sync_to_async(ask_connection)()
