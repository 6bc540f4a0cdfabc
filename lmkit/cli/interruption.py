"""The end of a command that is cut short or fails: one line, and an exit status."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from lmkit.errors.user_error import UserError, end_with
from lmkit.runs.stop_signals import INTERRUPTED, StopRequested
from lmkit.runs.unread_output import forget_closed_pipes, send_to_nowhere

AGAIN = "the same command resumes from what was saved"
BROKEN_PIPE_STATUS = 1  # exit status where nobody reads the output any more, as rich has it


# what may be a bug in lmkit, or a reader that has gone (`quiet_when_unread`); anything else is a
# failure of disks, file servers, permissions, limits
_LEFT_ALONE = {
    *(None, errno.EPIPE, errno.EBADF, errno.EINVAL),
    *(errno.EEXIST, errno.EISDIR, errno.ENOENT, errno.ENOTDIR),
}


@contextmanager
def ends_in_one_line(again: str = "") -> Iterator[None]:
    """Ends a command that was interrupted, or failed for a reason outside lmkit, with one line.

    Args:
        again: what the same command does next time, for commands that resume; printed unless what
            interrupted the command says more.
    """
    try:
        yield
    except UserError as error:
        # an error from a launcher's process may have been printed only into a log
        if error.printed_on == stderr_file():
            sys.exit(error.exit_status)
        end_with(error)
    except KeyboardInterrupt:
        _end("interrupted", again, INTERRUPTED)
    except StopRequested as asked:
        _end(str(asked), "" if asked.where else again, asked.code)
    except OSError as error:
        if error.errno in _LEFT_ALONE:
            raise
        failed = UserError(f"{error.filename or 'a file, or the output'}: {error.strerror}")
        failed.__cause__ = error
        end_with(failed)


def stderr_file() -> tuple[int, int]:
    """The file behind standard error, which processes may share."""
    file = os.fstat(2)
    return file.st_dev, file.st_ino


@contextmanager
def quiet_when_unread() -> Iterator[None]:
    """Ends the process silently once the reader of its output, such as `head`, has gone."""
    try:
        try:
            yield
        finally:
            _flush()
    except BrokenPipeError as error:
        if not forget_closed_pipes():  # but another pipe, or a connection
            raise
        ended = error.__context__
        raise (ended if isinstance(ended, SystemExit) else SystemExit(BROKEN_PIPE_STATUS)) from None


def _flush() -> None:
    """As Python does at exit, which complains in many lines."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, say: what could not be written must not be tried again
        send_to_nowhere(sys.stdout.fileno())
        sys.exit(f"error: the output cannot be written: {error.strerror}")


def _end(why: str, again: str, status: int | str | None) -> NoReturn:
    line = f"{why}: {again}" if again else why
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        line = f"\r\033[K{line}"  # over the ^C that the terminal shows
    print(line, file=sys.stderr, flush=True)
    sys.exit(status)
