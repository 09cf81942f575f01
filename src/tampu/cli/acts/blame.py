"""What the user's own code raised: its traceback from where that code begins, then a sentence."""

import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import tampu
from tampu.cli.ending import Ended, ExitCode

_NOT_THEIRS: Final = (str(Path(tampu.__file__).parent), sysconfig.get_path("stdlib"), "<frozen ")


def raised(error: Exception, code: ExitCode, what: str) -> Ended:
    """Show it, and end the command; `what` says which part of theirs raised it."""
    part = _own_part(error.__traceback__)
    if part is None and not isinstance(error, SyntaxError):  # nothing of theirs is in it
        part = error.__traceback__
    sys.stderr.write("".join(traceback.format_exception(type(error), error, part)))
    return Ended(code, f"{what}; it raised {type(error).__name__}.")


def _own_part(found: TracebackType | None) -> TracebackType | None:
    """Without the frames that led there; None if all are such."""
    while found is not None and _is_ours(found.tb_frame.f_code.co_filename):
        found = found.tb_next
    return found


def _is_ours(file: str) -> bool:
    return file.startswith(_NOT_THEIRS) and "site-packages" not in file.removeprefix(_NOT_THEIRS[0])
