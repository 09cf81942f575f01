"""Payloads, under the name that chasquimq has for them; its own tests use it."""

from tampu.compat.adapter.encoding import decode_payload, encode_payload

__all__ = ["decode_payload", "encode_payload"]
