"""The three files of a corpus on disk, and one-line errors that say what is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

from lmkit.errors.user_error import UserError

SPLITS = ("train", "valid", "test")
DOWNLOADABLE = ("penn", "wikitext-2")


class SplitFiles:
    """`root`/`folder`/{train,valid,test}`suffix`, in UTF-8.

    Args:
        root: folder that holds the corpora; None where the user has not said it yet.
        folder: the corpus's own folder below `root`, "." where `root` is that folder.
        suffix: of the files, with its dot.
        in_environment: whether the configuration also takes `root` from LMKIT_DATA.
    """

    def __init__(self, root: str | None, folder: str, suffix: str, in_environment: bool) -> None:
        if root is None and in_environment:  # as in the configuration of a run that was kept
            root = os.environ.get("LMKIT_DATA")
        self.root = None if root is None else str(root)  # a folder may be called 2026
        self.folder, self.suffix, self.in_environment = folder, suffix, in_environment

    def read(self, split: str) -> bytes:
        """The bytes of a split. Raises: UserError when `data.root` is unset or lacks the file."""
        path = self.path(split)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            is_environments = self.in_environment and self.root == os.environ.get("LMKIT_DATA")
            root = f"data.root={self.root}{' (LMKIT_DATA)' * is_environments}"
            raise UserError(
                f"{path} does not exist: {root} must be a folder with {self._relative(split)} in "
                f"it{self._download_hint()}"
            ) from None
        except NotADirectoryError:
            raise UserError(
                f"data.root={self.root} must be a folder with {self._relative(split)} in it, but "
                f"is a file"
            ) from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None

    def text(self, split: str) -> str:
        """The text of a split, without a byte order mark.

        Raises: UserError as `read`, and naming the place that is not UTF-8.
        """
        raw = self.read(split)
        try:
            return raw.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise UserError(
                f"{self.named(split, line)}: the byte 0x{raw[error.start]:02x} is not UTF-8 text; "
                f"convert the file to UTF-8"
            ) from None

    def named(self, split: str, line: int | None = None) -> str:
        """Where a split, or a line of it (from 1), is found, for messages."""
        return f"{self.path(split)}" + ("" if line is None else f", line {line}")

    def path(self, split: str) -> Path:
        """Where the file of a split is. Raises: UserError when `data.root` is not set."""
        if self.root is None:
            environment = " or in the environment variable LMKIT_DATA" * self.in_environment
            raise UserError(
                f"data.root is not set: give the folder with {self._relative('train')} in it as "
                f"data.root=FOLDER{environment}{self._download_hint()}"
            )
        return Path(self.root).expanduser() / self._relative(split)

    def _relative(self, split: str) -> str:
        return str(Path(self.folder) / f"{split}{self.suffix}")

    def _download_hint(self) -> str:
        if self.folder not in DOWNLOADABLE:
            return ""
        return f"; `lmkit download {self.folder} root=FOLDER` fetches it"
