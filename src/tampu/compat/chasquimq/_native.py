"""The low-level parts, under the name that chasquimq has for them; its own tests use it."""

from tampu.compat.adapter.consumer import Consumer
from tampu.compat.adapter.consumer import RawJob as _Job
from tampu.compat.adapter.producer import Producer
from tampu.compat.adapter.scheduler import Scheduler
from tampu.compat.chasquimq import version

__all__ = ["Consumer", "Producer", "Scheduler", "_Job", "version"]
