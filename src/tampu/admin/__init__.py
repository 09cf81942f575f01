"""What can be seen of a queue, and done to it, from outside."""
