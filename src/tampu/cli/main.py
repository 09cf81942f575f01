"""The entry point: whatever happens ends in an exit code and at most one sentence."""

import sys
from typing import NoReturn

import typer
from typer.main import get_command

from tampu.cli.ending import Ended, ExitCode, stop_printing
from tampu.cli.tree import tree
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
    sys.exit(_ended(sys.argv[1:]))


def _ended(typed: list[str]) -> int:
    try:
        code = get_command(tree()).main(args=typed, prog_name="tampu", standalone_mode=False)
        sys.stdout.flush()
    except Ended as end:
        return _say(end.sentence, end.code)
    except _UsageError as error:
        return _say(_usage(error), ExitCode.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except TampuError as error:
        return _say(str(error), _code(error))
    except BrokenPipeError:
        stop_printing()
        return ExitCode.OK
    return code if isinstance(code, int) else ExitCode.OK


def _code(error: TampuError) -> ExitCode:
    if isinstance(error, OptionError | ArgumentError | EncodeError):
        return ExitCode.USAGE
    if isinstance(error, JobFailed | ResultTimeout):
        return ExitCode.NO
    return ExitCode.SERVER


def _usage(error: BaseException) -> str:
    told = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    return told if told.endswith("?") else f"{told.rstrip('.')}; see --help."


def _say(sentence: str, code: ExitCode) -> int:
    if sentence:
        sys.stdout.flush()
        sys.stderr.write(f"tampu: {sentence}\n")
    return code
