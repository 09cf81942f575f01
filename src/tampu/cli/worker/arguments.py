"""What is typed for every process that runs until it is told to stop: its health and its log."""

from typing import Annotated

import typer

from tampu.cli.worker.log import LogFormat, LogLevel

HealthFile = Annotated[
    str | None,
    typer.Option(
        "--health-file",
        metavar="PATH",
        help="Touch this file every second while all is well.",
        show_default=False,
    ),
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        metavar="N",
        min=1,
        max=65_535,
        help="Answer /live, /ready and /metrics on this port.",
        show_default=False,
    ),
]
HealthHost = Annotated[
    str, typer.Option("--health-host", metavar="HOST", help="Host of the health port.")
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import this module, which declares tasks of the app. Can be repeated.",
        show_default=False,
    ),
]
Level = Annotated[
    LogLevel, typer.Option("--log-level", help="Log records of this level and above.")
]
Format = Annotated[
    LogFormat,
    typer.Option("--log-format", help="Write the log as lines of text or as lines of JSON."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print nothing at the start.", show_default=False)
]
