"""Output that nobody reads any more: a closed terminal, or a pipe whose reader has gone."""

import errno
import io
import os
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def open_outputs() -> None:
    """Standard output and error that a process was started without become output to nowhere: files
    that it opens must not take their places. What the others cannot encode, they show as its code.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            send_to_nowhere(descriptor)
            setattr(sys, name, os.fdopen(descriptor, "w", closefd=False))
        elif isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
            stream.reconfigure(errors="backslashreplace")


def send_to_nowhere(descriptor: int) -> None:
    """Discards what is written to the descriptor from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    if nowhere != descriptor:
        os.close(nowhere)


def forget_closed_terminal() -> None:
    """Discards further output: a write error would prevent saving."""
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                send_to_nowhere(descriptor)


def forget_closed_pipes() -> bool:
    """Discards further output to pipes that nobody reads.

    Returns: whether standard output or standard error is such a pipe.
    """
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)  # errors are reported without being asked for
    closed = [each for each, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]
    for descriptor in closed:
        send_to_nowhere(descriptor)
    return bool(closed)


class _MayBeUnread(io.FileIO):
    """Standard output or error, which discards what nobody reads any more."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            send_to_nowhere(self.fileno())
            return len(data)


@contextmanager
def whether_read_or_not() -> Iterator[None]:
    """In the block, output to a pipe that nobody reads any more is discarded: a progress bar must
    not end a run."""
    before = sys.stdout, sys.stderr
    streams = []
    for stream, descriptor in zip(before, (1, 2), strict=True):
        try:
            is_own = stream.fileno() == descriptor
        except (AttributeError, OSError, ValueError):  # closed, or an object of the caller's
            is_own = False
        if is_own:
            stream.flush()
            raw = io.BufferedWriter(_MayBeUnread(descriptor, "wb", closefd=False))
            stream = io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True)
        streams.append(stream)
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
