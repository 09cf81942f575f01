"""URLs, under the name that chasquimq has for them; its own tests use it."""

from tampu.compat.adapter.address import apply_tls

__all__ = ["apply_tls"]
