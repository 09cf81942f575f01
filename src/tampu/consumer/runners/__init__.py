"""The ways to run a handler: on the loop, in a thread, in a child process."""
