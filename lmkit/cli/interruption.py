"""The end of a command that a mistake or a signal cut short: one line, and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from lmkit.errors.user_error import UserError, end_with
from lmkit.runs.leave import INTERRUPTED, AskedToLeave

AGAIN = "the same command again goes on from the last checkpoint"


@contextmanager
def ends_in_one_line(again: str = "") -> Iterator[None]:
    """Runs a command without Hydra. Args: again: as of `end`."""
    try:
        yield
    except UserError as error:
        end_with(error)
    except (KeyboardInterrupt, AskedToLeave) as cut_short:
        end(cut_short, again)


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
