"""Heartbeats through a shared file system: a file's modification time, by the server's clock.

The clocks of two machines may be minutes apart. So wherever a file can be made, the server provides
all times: it stamps the heartbeat, and it stamps "now".
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

PROBE = ".clock."  # the names of files that ask the server for the time begin so


class Heartbeat:
    """Stamps the file at `path` every `interval_s` seconds, until `stop`.

    It holds on to the file itself, whatever happens to its name: a file that has since taken its
    place is never stamped.
    """

    def __init__(self, path: Path, interval_s: float) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self) -> float:
        """Stamps the file now; the time, in seconds since 1970, by the file server's clock.

        Raises: OSError when it cannot be stamped.
        """
        os.utime(self._descriptor)  # without a time: the server's now
        return os.fstat(self._descriptor).st_mtime

    def stop(self) -> None:
        """Ends the heartbeat; no stamp is given after this returns."""
        self._stopping.set()
        self._thread.join()
        os.close(self._descriptor)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            # The server may be back later. A holder replaced meanwhile finds another token there.
            with suppress(OSError):
                self.beat()


def server_time_s(folder: Path) -> float:
    """Now, in seconds since 1970, by the clock that stamps the files in `folder`.

    Raises: OSError when no file can be made there.
    """
    probe = folder / f"{PROBE}{os.urandom(8).hex()}.tmp"
    descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def remove_probes(folder: Path) -> None:
    """Removes what processes left that were killed while they asked for the server's time.

    One that is asking holds its file open, and no longer needs its name.

    Raises: OSError when one cannot be removed.
    """
    for probe in folder.glob(f"{PROBE}*"):
        probe.unlink(missing_ok=True)
