"""Serves the project with the dashboard in it: `python serve.py asgi` or `wsgi`. Prints a port."""

import os
import socket
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

import uvicorn
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

IS_ASGI = sys.argv[1] == "asgi"
application = get_asgi_application() if IS_ASGI else get_wsgi_application()

from tampu.django.dashboard import mount_dashboard

application = mount_dashboard(application, path="/jobs")


class Silent(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""


if IS_ASGI:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(application, log_level="error")).run([listener])
else:
    server = make_server("127.0.0.1", 0, application, handler_class=Silent)
    print(server.server_port, flush=True)
    server.serve_forever()
