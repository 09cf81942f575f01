"""Text about processes."""

import signal


def describe_exit(code: int) -> str:
    """How a process ended: "exit code 3", or "signal SIGKILL" for a negative code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-code}"
