"""The worker, under the name that chasquimq has for it."""

from tampu.compat.adapter.address import CredentialProvider
from tampu.compat.adapter.worker import Handler, Worker

__all__ = ["CredentialProvider", "Handler", "Worker"]
