"""The dashboard: what happens on your queues, as web pages.

`tampu dashboard` runs it. `Dashboard` is an ASGI app to mount in your own. It needs the extra
`tampu[dashboard]`, and this package is the only one that imports it.
"""

from tampu.errors import MissingExtra

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ModuleNotFoundError as missing:
    raise MissingExtra("dashboard", missing.name or "starlette") from missing

from tampu.dashboard.access import Access, Action, Credentials
from tampu.dashboard.app import Dashboard

__all__ = ["Access", "Action", "Credentials", "Dashboard"]

del _jinja2, _starlette
