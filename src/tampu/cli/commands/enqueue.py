"""`tampu enqueue`."""

from typing import Annotated

import typer

from tampu.cli.shared import Running, Shared, command

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="MODULE:APP TASK",
        help="The app and its task; with --queue and no app, the job's name.",
        show_default=False,
    ),
]
Queue = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", metavar="NAME", help="The queue; else the task's.", show_default=False
    ),
]
Args = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        "-a",
        metavar="NAME=VALUE",
        help="An argument of the task; JSON if it can be, else text. May be given again.",
        show_default=False,
    ),
]
JsonArgs = Annotated[
    str | None,
    typer.Option(
        "--json-args", metavar="JSON", help='Arguments, as {"to": "ada"}.', show_default=False
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="JSON", help="The job's data, without an app.", show_default=False
    ),
]
Delay = Annotated[
    str | None,
    typer.Option("--delay", metavar="DURATION", help="Run it so much later.", show_default=False),
]
JobId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The job's id.", show_default=False)
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for its result and print it.", show_default=False)
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="Wait no longer.")]


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(app, "enqueue")(enqueue)


def enqueue(
    shared: Shared,
    words: Words,
    queue: Queue = None,
    arg: Args = None,
    json_args: JsonArgs = None,
    data: Data = None,
    delay: Delay = None,
    job_id: JobId = None,
    wait: Wait = False,  # noqa: FBT002 - typer's way
    timeout: Timeout = "30s",
) -> Running:
    """Add a job and print its id.

    A call of an app's task, its arguments checked; or with --queue a job by its name.
    """
    from tampu.cli.acts import enqueue as act

    given = act.Given(arg or [], json_args, data)
    wanted = act.Wanted(queue, delay, job_id, timeout if wait else None)
    return act.enqueue(shared, words, given, wanted)
