"""The process above a worker process, seen from below."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from tampu.cli.working.words import Word, encode_word

MARKER: Final = "TAMPU_PARENT"
"""In the environment of a worker process: the two ends of pipes that it was given."""


class Parent:
    """Is told how we are. While it lives it holds a pipe open, which is how we know."""

    def __init__(self, life: int, words: int) -> None:
        self._life, self._words = life, words
        self._unsaid = b""
        for end in (life, words):
            os.set_inheritable(end, False)  # noqa: FBT003 - what we start is not its business
            os.set_blocking(end, False)

    @classmethod
    def found(cls) -> Self | None:
        """The one that started this process; None if that was the user. Asked once."""
        told = os.environ.pop(MARKER, None)
        if told is None:
            return None
        life, _, words = told.partition(",")
        return cls(int(life), int(words))

    def tell(self, word: Word) -> None:
        """Say something, unless it is gone or does not listen."""
        words = self._unsaid + encode_word(word)
        with suppress(OSError):
            self._unsaid = words[os.write(self._words, words) :]  # a long list may not fit at once

    def when_gone(self, act: Callable[[], None]) -> None:
        """Do something when it has died, however it died."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            with suppress(BlockingIOError):
                if not os.read(self._life, 64):
                    loop.remove_reader(self._life)
                    act()

        loop.add_reader(self._life, look)
