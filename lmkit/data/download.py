"""Fetches a corpus from its public address, as `sources.csv` has it.

PTB is Mikolov's, in the copy that goes with Zaremba et al. 2014. WikiText-2 is the authors' own
archive (Merity et al. 2017), on the first author's host. Word similarity is Faruqui and Dyer's
(2014).
A file must have the SHA-256 of the one that the project's numbers were made with, and appears under
its name only when it is complete. Files that are there already are kept.
"""

import csv
import hashlib
import socket
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import make_folder, replace_bytes
from lmkit.runs.source import sha256_of_file

TIMEOUT_S = 30


class PublicFile(NamedTuple):
    """A file of a corpus."""

    name: str  # in the corpus's folder
    sha256: str  # hex
    url: str
    member: str = ""  # its path in the archive, where the address is that of a zip file


def _sources() -> dict[str, list[PublicFile]]:
    found: dict[str, list[PublicFile]] = {}
    with Path(__file__).with_name("sources.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row.pop("corpus"), []).append(PublicFile(**row))
    return found


SOURCES = _sources()


def download(corpus: str, root: Path, sources: Mapping[str, Sequence[PublicFile]]) -> Path:
    """Puts the files of `corpus` into its folder below `root`, and returns that folder.

    Raises:
        UserError: the address does not answer, or sends another file than the published one;
            another file of that name is there already; the folder cannot be written. Files that
            were there before stay as they were.
    """
    folder = root / corpus
    make_folder(folder)
    missing = [wanted for wanted in sources[corpus] if not _is_there(folder / wanted.name, wanted)]
    if not missing:
        return folder
    try:
        made = tempfile.TemporaryDirectory(prefix=".download-", dir=folder)
    except OSError as error:
        raise UserError(f"root={root}: {folder} cannot be written: {error.strerror}") from None
    with made as scratch:
        for url in dict.fromkeys(wanted.url for wanted in missing):
            fetched = Path(scratch) / url.rpartition("/")[2]
            _fetch(url, fetched)
            for wanted in (each for each in missing if each.url == url):
                replace_bytes(folder / wanted.name, _content(fetched, wanted))
    return folder


def _is_there(path: Path, wanted: PublicFile) -> bool:
    try:
        sha256 = sha256_of_file(path)
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


def _fetch(url: str, path: Path) -> None:
    """Fetches one address, with a progress bar."""
    from torch.hub import download_url_to_file  # which takes seconds to import

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)  # otherwise a host that falls silent is waited for for ever
    try:
        download_url_to_file(url, str(path))
    except (OSError, HTTPException) as error:  # also urllib's
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UserError(f"{url} cannot be fetched: {reason}; try again later") from None
    finally:
        socket.setdefaulttimeout(before)


def _content(fetched: Path, wanted: PublicFile) -> bytes:
    if not wanted.member:
        content = fetched.read_bytes()
    else:
        try:
            with zipfile.ZipFile(fetched) as archive:
                content = archive.read(wanted.member)
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, RuntimeError) as error:
            raise UserError(
                f"{wanted.url} does not send a zip file with {wanted.member} in it, or the "
                f"connection broke ({error})"
            ) from None
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != wanted.sha256:
        raise UserError(
            f"{wanted.url} does not send the published file, or the connection broke: the SHA-256 "
            f"of {wanted.name} is {sha256}, not {wanted.sha256}"
        )
    return content
