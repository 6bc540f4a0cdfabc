"""Contexts on the disk: computed once, checked, memory-mapped, shared by all who need them.

A file holds the contexts of a split in the order of its windows, row-major, then a line with their
SHA-256. Its folder is named by a digest of all that decides them. It appears complete or not at
all, and a lock ensures that one process computes it while others wait.

Shapes: S steps of a column, C columns, T window length, D size of a context.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.filesize import decimal as data_size
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.fixed_trunk import cache
from lmkit.runs.atomic import make_folder, remove_leftovers, replace_atomically
from lmkit.runs.checksums import sha256_of_values, verify, write_checked
from lmkit.runs.lock import LockHeld, RunLock

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_STORED_AS = {"float32": np.float32, "bfloat16": np.int16}  # numpy has no bfloat16
_POLL_S = 0.5  # between two checks of a file that another process computes


class Contents(NamedTuple):
    """What a file of contexts holds."""

    decides: Mapping[str, object]  # everything that decides them, as plain data
    label: str  # of the file, for people
    shape: tuple[int, int, int]  # S, C, D
    dtype: str  # one of DTYPES

    @property
    def num_bytes(self) -> int:
        steps, columns, dim = self.shape
        return steps * columns * dim * DTYPES[self.dtype].itemsize

    @property
    def path(self) -> Path:
        digest = sha256_of_values([self.decides, self.shape, self.dtype])
        return cache.cache_folder() / f"{self.label}-{digest[:16]}" / cache.FILE


Compute = Callable[[], Iterable[Tensor]]  # computes the contexts (T, C, D), window by window


def stored_contexts(contents: Contents, compute: Compute) -> Tensor:
    """The contexts (S, C, D), mapped from the disk; computed if missing or damaged.

    Raises: UserError if the disk is too small; what `compute` raises.
    """
    while True:
        found = _mapped(contents)
        if found is not None:
            return found
        try:
            make_folder(contents.path.parent)
        except UserError as error:
            raise UserError(f"{error}; XDG_CACHE_HOME=/FOLDER keeps contexts elsewhere") from None
        try:
            with RunLock(cache.lock_of(contents.path)) as lock:
                # unless another process just computed them
                if _mapped(contents, tell=True) is None:
                    _write(contents, compute, lock.check)
        except LockHeld:
            with Console(stderr=True).status(
                f"{contents.label}: another process is computing them"
            ):
                time.sleep(_POLL_S)


def _write(contents: Contents, compute: Compute, check_lock: Callable[[], None]) -> None:
    path = contents.path
    make_folder(path.parent)  # lmkit clean contexts may have removed it
    remove_leftovers(path.parent, check_lock)
    free = shutil.disk_usage(path.parent).free
    if contents.num_bytes > free:
        smaller = " or trunk.dtype=bfloat16" if contents.dtype == "float32" else ""
        raise UserError(
            f"the contexts {contents.label} take {data_size(contents.num_bytes)}, and "
            f"{data_size(free)} are free in {path.parent}: free some, with lmkit clean contexts"
            f"{smaller}, or set XDG_CACHE_HOME to another disk"
        )
    steps, columns, dim = contents.shape
    print(
        f"contexts {contents.label}: {steps * columns:,} of {dim:,} numbers, {contents.dtype}, "
        f"{data_size(contents.num_bytes)} in {cache.cache_folder()}",
        flush=True,
    )

    def write(file: BinaryIO) -> None:
        written = 0
        for contexts_TCD in compute():
            if contexts_TCD.shape[1:] != contents.shape[1:]:
                raise UserError(
                    f"the trunk gives contexts of {contexts_TCD.shape[2]:,} numbers, not {dim:,}"
                )
            written += len(contexts_TCD)
            rows = contexts_TCD.to("cpu", DTYPES[contents.dtype]).contiguous()
            file.write(rows.view(torch.uint8).numpy().tobytes())
        assert written == steps, f"{written} steps of {steps}"

    replace_atomically(path, lambda file: write_checked(file, write), check_lock)


def _mapped(contents: Contents, tell: bool = False) -> Tensor | None:
    """None if there is no file, or it is damaged, which `tell` says, and which `_write` repairs."""
    path, stored = contents.path, _STORED_AS[contents.dtype]
    try:
        with path.open("rb") as file:
            with Console(stderr=True).status(f"{contents.label}: checking the contexts"):
                verify(file)
            # copy on write: torch does not accept read-only arrays
            mapped = np.memmap(file, stored, mode="c", shape=contents.shape)
    except FileNotFoundError:
        return None
    except ValueError as error:
        if tell:
            print(f"{path} is damaged: {error}; its contexts are recomputed", flush=True)
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    return torch.from_numpy(mapped).view(DTYPES[contents.dtype])
