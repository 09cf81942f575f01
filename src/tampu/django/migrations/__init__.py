"""The tables of `INSTALLED_APPS`."""
