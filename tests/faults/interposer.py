"""Faults in the calls by which a process opens, writes and names files, from within the C library.

`interposer.c` is built by gcc and preloaded. It obeys a control block, which forked processes share
with the one that armed it.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
ANY = -1  # kind of call


class Kind(IntEnum):
    """Of calls, as `interposer.c` numbers them."""

    OPEN = 0  # to write
    READ = 1  # an open to read
    WRITE = 2
    FSYNC = 3
    LINK = 4
    RENAME = 5
    UNLINK = 6
    TRUNCATE = 7
    CREATE = 8  # a new file: in a recording alone


class Action(IntEnum):
    """What happens at the chosen call."""

    NOTHING = 0
    SIGNAL = 1  # the process gets it just before the call
    FAIL = 2  # the call fails
    TEAR = 3  # a write writes a part; then the process is killed or, when lasting, calls fail


class Control(ctypes.Structure):
    """The control block, field by field as in `interposer.c`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("watching", "kind", "action", "value", "concerned")),
        *((name, ctypes.c_int32) for name in ("lasting", "fired", "pid", "trace", "share")),
        ("nth", ctypes.c_int64),
        ("counts", ctypes.c_int64 * len(Kind)),
        ("folder", ctypes.c_char * 4096),
    )

    def watch(self, folder: Path) -> None:
        """Counts the calls for files below `folder` from now on, without a fault."""
        ctypes.memset(ctypes.byref(self), 0, ctypes.sizeof(self))
        self.folder, self.trace = bytes(folder), -1
        self.watching = 1


def has_compiler() -> bool:
    return shutil.which("gcc") is not None


def preloaded(module: str) -> Control:
    """The control block of this process.

    A process without the library is replaced by one that has it: by `module`, with the same
    arguments.
    """
    library = os.environ.get("LD_PRELOAD", "")
    if not library.endswith("/interposer.so"):
        environment = os.environ | {"LD_PRELOAD": str(built()), "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)
    del os.environ["LD_PRELOAD"]  # what processes of other programs do is nobody's concern
    control = control_of(library)
    shutil.rmtree(Path(library).parent)
    return control


def control_of(library: str) -> Control:
    """The control block that the preloaded library has; processes forked from now on share it."""
    interpose = ctypes.CDLL(library).interpose
    interpose.restype = ctypes.POINTER(Control)
    return interpose().contents


def built() -> Path:
    """The library, in a folder of its own."""
    library = Path(tempfile.mkdtemp(prefix="interposer-")) / "interposer.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library
