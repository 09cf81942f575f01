"""The entry point: whatever happens ends in an exit code and at most one sentence."""

import sys
from typing import NoReturn

import typer
from typer.main import get_command

from tampu.cli.ending import Ended, ExitCode, have_streams, stop_printing
from tampu.cli.tree import tree
from tampu.cli.visible import visible
from tampu.errors import (
    ArgumentError,
    EncodeError,
    JobFailed,
    OptionError,
    ResultTimeout,
    TampuError,
)

# Of the click inside typer, which is private: reached through the one error that typer gives out.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> NoReturn:
    """Run what was typed, and end the process."""
    have_streams()
    code, sentence = int(ExitCode.OK), ""
    try:
        code, sentence = _ended(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        stop_printing()
    except OSError as error:  # a disk that is full, a directory that is gone
        stop_printing()
        code, sentence = ExitCode.NO, f"the system refused: {error}."
    if sentence:
        sys.stderr.write(f"tampu: {' '.join(visible(sentence).splitlines())}\n")
    sys.exit(code)


def _ended(typed: list[str]) -> tuple[int, str]:
    try:
        code = get_command(tree()).main(args=typed, prog_name="tampu", standalone_mode=False)
    except Ended as end:
        return end.code, end.sentence
    except _UsageError as error:
        return ExitCode.USAGE, _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED, ""
    except TampuError as error:
        return _code(error), str(error)
    return code if isinstance(code, int) else ExitCode.OK, ""


def _code(error: TampuError) -> ExitCode:
    if isinstance(error, OptionError | ArgumentError | EncodeError):
        return ExitCode.USAGE
    if isinstance(error, JobFailed | ResultTimeout):
        return ExitCode.NO
    return ExitCode.SERVER


def _usage(error: BaseException) -> str:
    told = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    return told if told.endswith("?") else f"{told.rstrip('.')}; see --help."
