"""Other job queues. Each runs in an environment of its own.

`python -m benchmarks.peers` compares them all with tampu, and with `--flow` the flow control of
some. `python -m benchmarks` compares tampu with ChasquiMQ in more detail, with
`chasquimq_scenarios.py`.
"""
