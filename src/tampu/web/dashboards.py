"""What is mounted as a dashboard; a file of its own, as neither framework needs the other one."""

import sys

from tampu.errors import OptionError


def check_dashboard(given: object) -> None:
    """Refuse anything but a `Dashboard` or None."""
    # Not imported here, as it needs an extra: whoever has made one has imported it.
    made = getattr(sys.modules.get("tampu.dashboard"), "Dashboard", ())
    if given is not None and not isinstance(given, made):
        raise OptionError("dashboard", given, "expected a Dashboard(app, access=...)")
