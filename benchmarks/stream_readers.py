"""Reads the streams of jobs: `python -m benchmarks.stream_readers URL QUEUE CHUNKS JOB_ID...`.

Prints a line when it follows all of them, and one when it has read all.
"""

import asyncio
import sys

import uvloop

from tampu import Queue


async def main(url: str, name: str, job_ids: list[str], *, chunks: int) -> None:
    """Follow all jobs to their ends."""
    async with Queue(name, url) as queue:

        async def follow(job_id: str) -> int:
            return sum([1 async for _ in queue.job(job_id).stream()])

        following = [asyncio.create_task(follow(job_id)) for job_id in job_ids]
        await asyncio.sleep(1)
        print("following", flush=True)
        assert await asyncio.gather(*following) == [chunks] * len(job_ids)
        print("read", flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[4:], chunks=int(sys.argv[3])))
