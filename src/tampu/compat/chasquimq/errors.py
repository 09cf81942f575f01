"""Errors, under the name that chasquimq has for them."""

from tampu.compat.adapter.errors import NotSupportedError, UnrecoverableError

__all__ = ["NotSupportedError", "UnrecoverableError"]
