"""The peers, their pinned versions, and how each of them is run."""

from dataclasses import dataclass, replace
from typing import Final

from tests.peers import PACKAGE as CHASQUIMQ_PACKAGE

OURS: Final = "tampu"


@dataclass(frozen=True, slots=True)
class Peer:
    """A job queue: its file in this folder, its packages, and how it is run."""

    name: str
    title: str
    packages: tuple[str, ...]  # the first one is the queue itself
    way: str
    node: bool = False  # from npm instead of PyPI


TAMPU: Final = Peer(OURS, "tampu", (), "asyncio, one process, 100 handlers")
CHASQUIMQ: Final = Peer(
    "chasquimq",
    "ChasquiMQ",
    (CHASQUIMQ_PACKAGE, "uvloop==0.23.0"),
    "asyncio over its Rust engine, one process, 100 handlers",
)
BULLMQ: Final = Peer(
    "bullmq",
    "BullMQ",
    ("bullmq@6.7.0", "ioredis@6.0.0"),
    "Node, one process, concurrency 100; its events cannot be turned off",
    node=True,
)
CELERY: Final = Peer(
    "celery",
    "Celery",
    ("celery[redis]==5.7.0", "hiredis==3.5.0", "gevent==26.9.0"),
    "one process, pool of 100 greenlets (gevent)",
)
PEERS: Final = (
    TAMPU,
    CHASQUIMQ,
    BULLMQ,
    CELERY,
    Peer(
        "dramatiq",
        "dramatiq",
        ("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
        "one process, 100 threads",
    ),
    Peer(
        "rq",
        "RQ",
        ("rq==2.12.0", "hiredis==3.5.0"),
        "one SimpleWorker, which runs one job at a time",
    ),
    Peer(
        "huey",
        "Huey",
        ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
        "one process, 100 threads",
    ),
    Peer(
        "arq",
        "arq",
        ("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0"),
        "asyncio, one process, 100 jobs at a time",
    ),
    Peer(
        "saq",
        "SAQ",
        ("saq[redis,hiredis]==0.26.4", "typing-extensions==4.16.0", "uvloop==0.23.0"),
        "asyncio, one process, concurrency 100",
    ),
    Peer(
        "streaq",
        "streaQ",
        ("streaq==7.2.0", "uvloop==0.23.0"),
        "asyncio, one process, concurrency 100",
    ),
    Peer(
        "taskiq",
        "taskiq",
        ("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0", "uvloop==0.23.0"),
        "asyncio, one worker process, 100 tasks at a time, stream broker",
    ),
)
FLOW_PEERS: Final = (
    TAMPU,
    BULLMQ,
    replace(
        CELERY,
        way=f"{CELERY.way}; with priorities it reserves 100 jobs instead of 12 800",
    ),
    Peer(
        "docket",
        "docket",
        ("pydocket==0.27.0", "hiredis==3.5.0", "uvloop==0.23.0"),
        "asyncio, one process, concurrency 100, looks for free places every 10 ms, keeps no state",
    ),
)
"""Those that are compared in flow control."""
