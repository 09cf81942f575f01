"""The bytes on the server and the typed values they stand for.

Pure code: nothing here reads a clock, draws a random number or talks to a server. The shapes match
ChasquiMQ 1.3 byte for byte; docs/internals/wire-format.md describes them all.
"""
