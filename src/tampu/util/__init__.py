"""Small helpers that know nothing of queues."""
