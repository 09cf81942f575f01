"""The bytes on the server and the typed values they stand for.

Pure code: nothing here reads a clock, draws a random number or talks to a server. One module
holds one shape, byte for byte as ChasquiMQ 1.3 writes it; docs/internals/wire-format.md tells all.
"""
