"""The end of a command that Ctrl-C or another signal cut short: one line, and its exit status."""

from __future__ import annotations

import sys
from typing import NoReturn

from lmkit.runs.leave import INTERRUPTED, AskedToLeave

AGAIN = "the same command again goes on from the last checkpoint"


def end(cut_short: KeyboardInterrupt | AskedToLeave, again: str = "") -> NoReturn:
    """Says why the command ends, and ends it.

    Args:
        cut_short: what ended it.
        again: what the same command does next time, for commands that go on; said unless
            `cut_short` knows better.
    """
    asked = cut_short if isinstance(cut_short, AskedToLeave) else None
    line = str(asked) if asked else "interrupted"
    if again and not (asked and asked.where):
        line += f": {again}"
    if sys.stderr.isatty():
        line = f"\r\033[K{line}"  # over the ^C that the terminal shows
    print(line, file=sys.stderr, flush=True)
    sys.exit(INTERRUPTED if asked is None else asked.code)
