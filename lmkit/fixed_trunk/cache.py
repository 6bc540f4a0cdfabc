"""Where contexts are kept, and how they are removed; known without torch."""

import shutil
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal as data_size

from lmkit.presentation.tables import Column, Row, plain_table
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.retention import bytes_on_disk
from lmkit.runs.user_cache import user_cache

FILE = "contexts.bin"


def cache_folder() -> Path:
    """Where contexts are kept: a folder per trunk, split and layout."""
    return user_cache() / "contexts"


def lock_of(path: Path) -> Path:
    """The lock under which the file of contexts `path` is written; beside its folder."""
    return path.parent.with_name(f"{path.parent.name}.lock")


def clean(dry_run: bool, console: Console) -> None:
    """Shows the contexts that are kept, and removes them unless `dry_run`.

    Contexts that a process is computing stay. A process that reads them continues: the disk space
    is free once it ends.
    """
    found = [path for path in cache_folder().glob("*") if path.is_dir()]
    folders = sorted(path for path in found if not path.is_symlink())  # to another disk, say
    sizes = [bytes_on_disk(folder) for folder in folders]
    rows: list[Row] = [
        [path.name, data_size(size)] for path, size in zip(folders, sizes, strict=True)
    ]
    if rows:
        title = f"contexts in {cache_folder()}"
        columns = [Column("contexts", is_text=True), Column("on disk")]
        console.print(plain_table(title, columns, rows))
    total = data_size(sum(sizes))
    if dry_run:
        console.print(
            f"{total} of contexts; nothing has been removed; dry_run=false removes them, and runs "
            f"that need them compute them again",
            highlight=False,
            soft_wrap=True,
        )
        return
    for folder in folders:
        try:
            with RunLock(lock_of(folder / FILE)), suppress(FileNotFoundError):
                shutil.rmtree(folder)
        except LockHeld:
            console.print(f"left as it is: {folder.name}: a process is computing it", markup=False)
    left = sum(map(bytes_on_disk, folders))
    console.print(f"{data_size(sum(sizes) - left)} freed", highlight=False)
