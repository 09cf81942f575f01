"""The job that all benchmarks use. Imports nothing, so programs of other queues can use it too."""

from typing import Final

QUEUE: Final = "bench"
NAME: Final = "job"
DATA: Final = {"to": "augusta.byron@example.com"}
PAYLOAD_BYTES: Final = 30  # the size of DATA in MessagePack
CONCURRENCY: Final = 100
