"""Inspection and administration of queues: for `Queue`, the command line and dashboards."""
