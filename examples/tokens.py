"""A page that shows the words of an answer as they come, also after a lost connection.

Needs `pip install 'tampu[embedded,examples]'`. Start it, then open http://localhost:8000 and ask
something. Or, in another terminal:

    curl -X POST 'localhost:8000/answers?question=why'
    curl -N localhost:8000/answers/ID-FROM-ABOVE
    curl -N -H 'Last-Event-ID: ID-OF-AN-EVENT' localhost:8000/answers/ID-FROM-ABOVE
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Header
from fastapi.responses import HTMLResponse, StreamingResponse

from tampu import App, AppWorker
from tampu.web import SSE_HEADERS, sse

app = App(default_queue="answers")


@app.task(collect="".join, cancel_on_close=True, attempts=3, result_ttl="1h")
async def answer(question: str) -> AsyncIterator[str]:
    """Where a language model would write its answer, token by token."""
    for word in f"You ask: {question} That depends on who you are, and on the weather.".split():
        await asyncio.sleep(0.05)
        yield f"{word} "


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Start the worker in the same program. Usually you run `tampu worker tokens:app`."""
    async with app, AppWorker(app):
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/answers", status_code=202)
async def ask(question: str) -> dict[str, str]:
    """Add a job and answer at once."""
    return {"id": (await answer.enqueue(question)).id}


@web.get("/answers/{job_id}")
async def follow(
    job_id: str, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Stream an answer. A browser that comes back says by itself what it has seen last."""
    return StreamingResponse(sse(answer.job(job_id), after=last_event_id), headers=SSE_HEADERS)


@web.get("/", response_class=HTMLResponse)
async def page() -> str:
    """The page. An `EventSource` connects again by itself, with the id of the last event."""
    return """<!doctype html>
<html lang="en"><title>Tokens</title>
<form><input name="question" value="Why?" aria-label="Question"> <button>Ask</button></form>
<p></p>
<script>
const answer = document.querySelector("p"), form = document.querySelector("form");
form.onsubmit = async (event) => {
  event.preventDefault();
  answer.textContent = "";
  const asking = "/answers?" + new URLSearchParams(new FormData(form));
  const asked = await fetch(asking, {method: "POST"});
  const source = new EventSource("/answers/" + (await asked.json()).id);
  source.onmessage = (chunk) => answer.append(JSON.parse(chunk.data));
  source.addEventListener("restarted", () => (answer.textContent = ""));
  source.addEventListener("done", () => source.close());
  for (const end of ["failed", "cancelled", "gone"])
    source.addEventListener(end, () => {
      answer.append(`(${end})`);
      source.close();
    });
};
</script></html>"""


if __name__ == "__main__":
    uvicorn.run(web, port=int(os.environ.get("PORT", "8000")))
