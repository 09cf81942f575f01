"""Text that a terminal shows and does not act on."""

import re
from typing import Final

# Controls, line separators, what turns the direction of writing, and halves of characters.
_ACTED_ON: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text, with escapes as of JSON for all that a terminal would act on.

    Names, errors and data come from whoever adds jobs; they are to be read and nothing else.
    Ends of lines and tabs stay.
    """
    return _ACTED_ON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
