"""The bytes on the server and the typed values they stand for.

Pure code: nothing here reads a clock, draws a random number or talks to a server. One module
holds one shape; `wire.md` of ChasquiMQ 1.3 is what they follow, byte for byte.
"""
