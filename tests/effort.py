"""How many random cases the tests try: a third in `make test`, all of them in `make test-all`."""

import os
from typing import Final

THOROUGH: Final = "TAMPU_THOROUGH" in os.environ


def cases(thorough: int) -> int:
    """How many cases to try, of so many that a thorough run tries."""
    return thorough if THOROUGH else max(1, thorough // 3)
