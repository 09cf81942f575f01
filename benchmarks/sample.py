"""The job that is measured. Imports nothing, so that a rival's program can have it too."""

from typing import Final

QUEUE: Final = "bench"
NAME: Final = "job"
DATA: Final = {"to": "augusta.byron@example.com"}
PAYLOAD_BYTES: Final = 30  # what DATA takes in MessagePack
CONCURRENCY: Final = 100
