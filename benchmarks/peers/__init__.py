"""Other job queues, each run with the Python of its own environment; they print JSON.

`python -m benchmarks.peers` compares them all. chasquimq_*.py are for `python -m benchmarks`.
"""
