"""Fetches a corpus from its public address.

A file must have the SHA-256 of the one that the project's numbers were made with, and appears under
its name only when it is complete. Files that are there already are kept. An interrupted download
resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from rich.progress import Progress, TaskID

from lmkit.data.sources import Download, Wanted
from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_atomically

BLOCK_BYTES = 1 << 16
TIMEOUT_S = 30
MAX_FAILURES = 3  # in a row, without one more byte
NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ssl.SSLError,
    ConnectionError,
)
HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; lmkit)"}  # WikiText-2's host rejects urllib's


def download(
    corpus: str,
    root: Path,
    progress: Progress,
    sources: Mapping[str, Sequence[Download]],
) -> Path:
    """Puts the files of `corpus` into its folder below `root`, and returns that folder.

    Raises:
        UserError: the address does not answer, or sends another file than the published one; the
            connection keeps breaking; another file of that name is there already; the disk is full.
            Files that were there before stay as they were.
    """
    folder = root / corpus
    missing = [
        source
        for source in sources[corpus]
        if not all(_is_there(folder / wanted.name, wanted) for wanted in source.wanted)
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"root={root}: {folder} cannot be made: {error.strerror}") from None
    for source in missing:
        _download_source(source, folder, progress)
    return folder


def _is_there(path: Path, wanted: Wanted) -> bool:
    try:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if sha256 != wanted.sha256:
        raise UserError(
            f"{path} is there already and is not the published file (its SHA-256 is {sha256}, not "
            f"{wanted.sha256}); move it away, or choose another root"
        )
    return True


def _download_source(source: Download, folder: Path, progress: Progress) -> None:
    part = folder / f"{source.url.rsplit('/', 1)[-1]}.part"
    resumed = part.exists()
    _fetch(source.url, part, progress)
    try:
        contents = _checked_contents(source, part)
    except UserError:
        part.unlink()  # nothing that is added to it would make it right
        if not resumed:
            raise
        # The part that was here may have been damaged, or part of an older file: from the start.
        _download_source(source, folder, progress)
        return
    for wanted, content in contents.items():
        path = folder / wanted.name
        if not _is_there(path, wanted):
            replace_atomically(path, partial(_write, content=content))
    part.unlink()


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _checked_contents(source: Download, part: Path) -> dict[Wanted, bytes]:
    contents = {}
    for wanted in source.wanted:
        content = _content(part, wanted, source.url)
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 != wanted.sha256:
            raise UserError(
                f"{source.url} does not send the published file: the SHA-256 of {wanted.name} is "
                f"{sha256}, not {wanted.sha256}; nothing was kept of it"
            )
        contents[wanted] = content
    return contents


def _content(part: Path, wanted: Wanted, url: str) -> bytes:
    if wanted.member is None:
        return part.read_bytes()
    try:
        with zipfile.ZipFile(part) as archive:
            return archive.read(wanted.member)
    # what zipfile raises for damaged archives
    except (zipfile.BadZipFile, zipfile.LargeZipFile, KeyError, EOFError, OSError) as error:
        raise UserError(
            f"{url} does not send a zip file with {wanted.member} in it ({error}); "
            f"nothing was kept of it"
        ) from None


def _fetch(url: str, part: Path, progress: Progress) -> None:
    """Brings `part` to its full size, resuming from the bytes it has."""
    task = progress.add_task(part.name.removesuffix(".part"), total=None)
    failures = 0
    while True:
        had = _size(part)
        try:
            if _fetch_rest(url, part, progress, task):
                return
            problem = "the connection closed early"
        except urllib.error.HTTPError as error:
            # asking again would not change the answer
            raise UserError(f"{url} answers {error.code} {error.reason}; try again later") from None
        except TimeoutError:
            problem = f"nothing came for {TIMEOUT_S} s"
        except NETWORK_ERRORS as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        except OSError as error:
            raise UserError(f"{part} cannot be written: {error.strerror}") from None
        failures = failures + 1 if _size(part) <= had else 0
        if failures == MAX_FAILURES:
            raise UserError(
                f"{url} cannot be fetched: {problem}; {_size(part):,} bytes of it are kept, the "
                f"same command resumes from there"
            )


def _fetch_rest(url: str, part: Path, progress: Progress, task: TaskID) -> bool:
    """Requests once what `part` lacks. Returns: whether it is then complete."""
    have = _size(part)
    headers = {**HEADERS, "Range": f"bytes={have}-"} if have else HEADERS
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S
        )
    except urllib.error.HTTPError as error:
        if have and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            # the server has no more than what is here; the checksum will say whether it is right
            return True
        raise
    with answer:
        # a server without ranges answers 200 with the whole file
        start = have if answer.status == http.client.PARTIAL_CONTENT else 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else None
        progress.update(task, completed=start, total=total)
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            while block := answer.read(BLOCK_BYTES):
                file.write(block)
                progress.advance(task, len(block))
    return total is None or _size(part) == total


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
