"""The entry point, and the tree of commands.

Whatever happens ends in an exit code and at most one sentence on standard error.
"""

import sys
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from tampu._version import __version__
from tampu.cli.options import AsJson, NoColor, SharedOptions, Url, help_if_alone, new_app
from tampu.cli.output import (
    CommandFailed,
    ExitCode,
    discard_output,
    ensure_streams,
    print_error,
)
from tampu.errors import (
    ArgumentError,
    EncodeError,
    JobCancelled,
    JobFailed,
    OptionError,
    ResultTimeout,
    StreamError,
    TampuError,
)

COMMANDS: Final = {
    "worker": ("worker.command", "Run the tasks of an app until Ctrl-C or SIGTERM."),
    "serve-time": ("serve_time", "Promote delayed jobs and fire schedules, without a worker."),
    "enqueue": ("enqueue", "Add a job and print its id."),
    "inspect": ("inspect", "Show the jobs and workers of one queue or of all."),
    "watch": ("watch", "Show queues as they change, until q or Ctrl-C."),
    "stats": ("stats", "Show what happened in the last hour, day or month."),
    "dashboard": ("dashboard", "Show queues, jobs and workers as web pages, until Ctrl-C."),
    "events": ("events", "Show what happened to the jobs of a queue."),
    "job": ("jobs", "List, show, follow, wait for, cancel or reschedule jobs."),
    "dead": ("dead", "List, show, replay or delete dead letters."),
    "schedule": ("schedules", "List, preview, pause, fire or remove schedules."),
    "flow": ("flows", "List, show, cancel or retry flows."),
    "outbox": ("outbox", "Show or move the rows of outboxes in databases."),
    "queue": ("queues", "List, pause, resume, drain or purge whole queues."),
    "limits": ("limits", "List or change limits, weights of keys, and what is paused."),
    "why": ("limits", "Say why a job is not running yet."),
    "mark": ("stats", "Mark this moment in all charts, such as a deployment."),
    "alerts": ("alerts", "Show alerts that have fired, and those that resolved lately."),
    "server": ("server", "Run the embedded server until Ctrl-C."),
    "doctor": ("server", "Check the setup of the server, and of the outboxes of an app."),
    "bench": ("bench", "Measure how fast jobs are added and run here."),
    "demo": ("demo", "Run a small shop, and the dashboard beside it, until Ctrl-C."),
    "version": ("server", "Show the versions of tampu and its dependencies."),
}
"""Each command with its module in `tampu.cli` and its line in the help.

A module is imported when one of its commands runs. It registers its commands in its `app`.
"""

_NEEDS_SIGNALS: Final = {"worker", "serve-time", "watch", "dashboard", "server", "demo"}
"""The commands that Windows has no signals, terminals or processes for."""

# The click inside typer is private. This is its error, reached through a public subclass.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class LazyGroup(TyperGroup):
    """A group whose commands are placeholders until one of them is to run or to print its help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:  # noqa: ANN401
        """The command that was typed, imported now."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        if sys.platform == "win32" and name in _NEEDS_SIGNALS:
            raise CommandFailed(
                f"`tampu {name}` needs Linux or macOS. On Windows, use WSL or a container.",
                code=ExitCode.USAGE,
            )
        return name, placeholder and load_command(str(name)), rest


def load_command(name: str) -> Any:  # noqa: ANN401 - click's command, whose class is private
    """Import the module of a command and return the command."""
    module = import_module(f"tampu.cli.{COMMANDS[name][0]}")
    return get_group(module.app).commands[name]


def _print_version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"tampu {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        help="Show the version of tampu and exit.",
        callback=lambda asked: _print_version(asked=asked),
        is_eager=True,
        show_default=False,
    ),
]


def build_tree() -> typer.Typer:
    """The program with a placeholder for each of its commands."""
    sentence = "Run workers, add jobs, and inspect and manage queues."
    app = new_app("tampu", sentence, add_completion=True)

    @app.callback(cls=LazyGroup, invoke_without_command=True, help=sentence)
    def start(  # noqa: PLR0917 - typer's way, as are the booleans
        ctx: typer.Context,
        url: Url = None,
        as_json: AsJson = False,  # noqa: FBT002
        no_color: NoColor = False,  # noqa: FBT002
        version: Version = False,  # noqa: FBT002
    ) -> None:
        del version  # its callback has ended the program
        ctx.obj = SharedOptions().merge(url=url, as_json=as_json, no_color=no_color)
        help_if_alone(ctx)

    for name, (_, line) in COMMANDS.items():
        app.command(name, help=line)(_placeholder)
    return app


def _placeholder() -> None:
    """Stands in for a command whose module is not imported."""


def main() -> NoReturn:
    """Run what was typed, and end the process."""
    ensure_streams()
    code, sentence = int(ExitCode.OK), ""
    try:
        code, sentence = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:  # such as a full disk
        discard_output()
        code, sentence = ExitCode.FAILED, f"The system reported an error: {error}."
    if sentence:
        print_error(sentence)
    sys.exit(code)


def _run(typed: list[str]) -> tuple[int, str]:
    try:
        code = get_command(build_tree()).main(args=typed, prog_name="tampu", standalone_mode=False)
    except CommandFailed as failed:
        return failed.code, failed.sentence
    except _UsageError as error:
        return ExitCode.USAGE, _describe_usage_error(error)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED, ""
    except TampuError as error:
        return _exit_code(error), str(error)
    return code if isinstance(code, int) else ExitCode.OK, ""


def _exit_code(error: TampuError) -> ExitCode:
    if isinstance(error, OptionError | ArgumentError | EncodeError):
        return ExitCode.USAGE
    if isinstance(error, JobFailed | JobCancelled | ResultTimeout | StreamError):
        return ExitCode.FAILED
    return ExitCode.SERVER


def _describe_usage_error(error: BaseException) -> str:
    """The error's own sentence, and where to read on unless it says what was meant."""
    text = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    text = text.replace("Value error, ", "")
    if text.endswith("?"):
        return text
    path = getattr(getattr(error, "ctx", None), "command_path", "tampu")
    return f"{text.rstrip('.')}. Try: {path} --help"
