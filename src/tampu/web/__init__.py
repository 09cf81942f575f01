"""Parts for web applications, whatever their framework.

`tampu.web.litestar` and `tampu.web.flask` are for these two, and import them.
"""

from tampu.admin.app_health import AppHealth, QueueHealth
from tampu.web.event_stream import SSE_HEADERS, sse

__all__ = ["SSE_HEADERS", "AppHealth", "QueueHealth", "sse"]
