"""What a run wrote, and what of it a power loss may leave on the disk.

The model is ALICE's (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014): data that
was not synced may be lost, there in part, or whole; a name that was made, changed or removed may be
so or not, until its folder was synced; both in any order. A rename happens whole or not at all, and
folders are there once they are needed.
"""

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tests.faults.interposer import Kind

_HEAD = struct.Struct("=iIIIQq")  # Record of interposer.c
_OF_DATA = (Kind.WRITE, Kind.TRUNCATE)
_OF_NAMES = (Kind.CREATE, Kind.LINK, Kind.RENAME, Kind.UNLINK)


@dataclass(frozen=True)
class Operation:
    """One call that changed a file or a folder."""

    kind: Kind
    path: str
    target: str  # of links and renames
    file: int  # the file's number: no two files of a recording share one
    offset: int
    data: bytes
    synced: int = 0  # index of the sync after which it is on the disk

    @property
    def folder(self) -> str:
        return os.path.dirname(self.target or self.path)


@dataclass
class Tree:
    """Files as a disk holds them: their names, and the content of each file."""

    names: dict[str, int] = field(default_factory=dict)
    content: dict[int, bytearray] = field(default_factory=dict)

    def apply(self, each: Operation) -> None:
        if each.kind == Kind.WRITE:
            content = self.content.setdefault(each.file, bytearray())
            content.extend(bytes(max(0, each.offset - len(content))))
            content[each.offset : each.offset + len(each.data)] = each.data
        elif each.kind == Kind.TRUNCATE:
            content = self.content.setdefault(each.file, bytearray())
            del content[each.offset :]
        elif each.kind in (Kind.CREATE, Kind.LINK):
            self.names[each.target or each.path] = each.file
        elif each.kind in (Kind.RENAME, Kind.UNLINK):
            if self.names.get(each.path) == each.file:
                del self.names[each.path]
            if each.kind == Kind.RENAME:
                self.names[each.target] = each.file

    def write(self) -> None:
        """Makes the files on this machine's disk."""
        first: dict[int, str] = {}
        for name, file in self.names.items():
            os.makedirs(os.path.dirname(name), exist_ok=True)
            if file in first:
                os.link(first[file], name)
            else:
                first[file] = name
                Path(name).write_bytes(self.content.get(file, b""))

    def digest(self) -> str:
        digest = hashlib.sha256()
        for name, file in sorted(self.names.items()):
            content = bytes(self.content.get(file, b""))
            digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()


class State(NamedTuple):
    """What a power loss may leave."""

    what: str
    tree: Tree


def read(recorded: bytes) -> list[Operation]:
    """The operations in the order in which they happened, syncs among them."""
    operations: list[Operation] = []
    names: dict[str, int] = {}
    numbers: dict[int, int] = {}  # of the file that has an inode now
    at = 0
    while at < len(recorded):
        number, *sizes, inode, offset = _HEAD.unpack_from(recorded, at)
        at += _HEAD.size
        parts = []
        for size in sizes:
            parts.append(recorded[at : at + size])
            at += size
        path, target = (os.fsdecode(part) for part in parts[:2])
        kind = Kind(number)
        if kind == Kind.CREATE:
            numbers[inode] = len(operations)
        file = names.get(path, -1) if kind == Kind.UNLINK else numbers.get(inode, -1)
        each = Operation(kind, path, target, file, offset, parts[2])
        if kind in _OF_NAMES:
            tree = Tree(names)
            tree.apply(each)
        operations.append(each)
    return with_syncs(operations)


def with_syncs(operations: Sequence[Operation]) -> list[Operation]:
    """Each operation with the first sync after it that brings it to the disk."""
    synced_files: dict[int, int] = {}
    synced_folders: dict[str, int] = {}
    result = []
    for i in reversed(range(len(operations))):
        each = operations[i]
        if each.kind == Kind.FSYNC and each.file >= 0:
            synced_files[each.file] = i
        elif each.kind == Kind.FSYNC:
            synced_folders[each.path] = i
        never = len(operations)
        if each.kind in _OF_DATA:
            result.append(replace(each, synced=synced_files.get(each.file, never)))
        else:
            result.append(replace(each, synced=synced_folders.get(each.folder, never)))
    return result[::-1]


def states(operations: Sequence[Operation]) -> Iterator[State]:
    """Each different tree that a power loss just before a sync, or at the end, may leave."""
    seen: set[str] = set()
    ends = [i for i, each in enumerate(operations) if each.kind == Kind.FSYNC]
    for end in [*ends, len(operations)]:
        past = {i: each for i, each in enumerate(operations[:end]) if each.kind != Kind.FSYNC}
        waiting = {i: each for i, each in past.items() if each.synced >= end}
        synced = {i: each for i, each in past.items() if each.synced < end}
        for what, kept in _choices(waiting):
            tree = Tree()
            for _, each in sorted((synced | kept).items()):
                tree.apply(each)
            digest = tree.digest()
            if digest not in seen:
                seen.add(digest)
                yield State(f"before operation {end}, {what}", tree)


def _choices(waiting: dict[int, Operation]) -> Iterator[tuple[str, dict[int, Operation]]]:
    """What of the operations that no sync has brought to the disk may be there, by their place."""
    names = {i: each for i, each in waiting.items() if each.kind in _OF_NAMES}
    data = {i: each for i, each in waiting.items() if each.kind in _OF_DATA}
    yield "all of it there", waiting
    yield "all lost", {}
    yield "names there and data lost", names
    yield "data there and names lost", data
    yield "data torn", {i: _torn(each) for i, each in waiting.items()}
    for i, each in waiting.items():
        yield f"all but {_told(each)}", {j: waiting[j] for j in waiting if j != i}
        yield f"nothing but {_told(each)}", {i: each}
        yield f"all up to {_told(each)}", {j: waiting[j] for j in waiting if j <= i}


def _torn(each: Operation) -> Operation:
    return replace(each, data=each.data[: len(each.data) // 2])


def _told(each: Operation) -> str:
    return f"{each.kind.name.lower()} of {os.path.basename(each.target or each.path)}"
