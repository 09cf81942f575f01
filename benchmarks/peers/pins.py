"""Who is compared with whom, and the versions: the only place that names them."""

from dataclasses import dataclass
from typing import Final

from tests.peers import PACKAGE as CHASQUIMQ_PACKAGE

OURS: Final = "tampu"


@dataclass(frozen=True, slots=True)
class Pin:
    """A peer: its file in this folder, what is installed for it, and how it is run."""

    name: str
    title: str
    packages: tuple[str, ...]  # the first one is the peer itself
    way: str
    node: bool = False  # from npm, else from PyPI


TAMPU: Final = Pin(OURS, "tampu", (), "asyncio, one process, 100 handlers")
CHASQUIMQ: Final = Pin(
    "chasquimq",
    "ChasquiMQ",
    (CHASQUIMQ_PACKAGE, "uvloop==0.23.0"),
    "asyncio over its Rust engine, one process, 100 handlers",
)
PINS: Final = (
    TAMPU,
    CHASQUIMQ,
    Pin(
        "bullmq",
        "BullMQ",
        ("bullmq@6.7.0", "ioredis@6.0.0"),
        "Node, one process, concurrency 100; its events cannot be turned off",
        node=True,
    ),
    Pin(
        "celery",
        "Celery",
        ("celery[redis]==5.7.0", "hiredis==3.5.0", "gevent==26.9.0"),
        "one process, pool of 100 greenlets (gevent)",
    ),
    Pin(
        "dramatiq",
        "dramatiq",
        ("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
        "one process, 100 threads",
    ),
    Pin(
        "rq",
        "RQ",
        ("rq==2.12.0", "hiredis==3.5.0"),
        "one SimpleWorker, which runs one job at a time",
    ),
    Pin(
        "huey",
        "Huey",
        ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
        "one process, 100 threads",
    ),
    Pin(
        "arq",
        "arq",
        ("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0"),
        "asyncio, one process, 100 jobs at a time",
    ),
    Pin(
        "saq",
        "SAQ",
        ("saq[redis,hiredis]==0.26.4", "typing-extensions==4.16.0", "uvloop==0.23.0"),
        "asyncio, one process, concurrency 100",
    ),
    Pin(
        "streaq",
        "streaQ",
        ("streaq==7.2.0", "uvloop==0.23.0"),
        "asyncio, one process, concurrency 100",
    ),
    Pin(
        "taskiq",
        "taskiq",
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0", "uvloop==0.23.0"),
        "asyncio, one worker process, 100 tasks at a time, stream broker",
    ),
)
