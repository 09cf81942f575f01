"""The embedded server: a real Valkey for a data directory."""
