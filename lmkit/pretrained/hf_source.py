"""Which pretrained models are measured, and the text that they read. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError, require_count, require_folder
from lmkit.pretrained.hf_checkpoints import Checkpoint, find_checkpoints
from lmkit.runs.folder import RunFolder

READER_VERSION = 3  # raised when models read a text in another way, or what is trained changes
OPTIONS = ("hf", "text", "revision", "window", "stride", "out")  # of conf/pretrained.yaml


class PretrainedSource:
    """The models and the text that the options of conf/pretrained.yaml mean.

    Args:
        hf: folder, pattern or name of a model, or a list of these.
        text: the file that they read.
        revision: of a name on the hub, or a list of revisions.
        window: tokens that a model reads at a time; None: as many as it was made for.
        stride: tokens that the window moves; None: half the window.
        out: the folder for what is measured.

    Raises: UserError naming the option.
    """

    def __init__(
        self,
        *,
        hf: Any,
        text: str | None,
        revision: Any,
        window: int | None,
        stride: int | None,
        out: str,
    ) -> None:
        for option, value, least in (("window", window, 2), ("stride", stride, 1)):
            if value is not None:
                require_count(option, value, least)
        if text is None:
            raise UserError("text is not set: the models of hf= read a file, text=FILE")
        require_folder("out", out)
        self.window, self.stride, self.out = window, stride, Path(out)
        self.text_name, self.text = Path(text).name, _read(text)
        self.checkpoints = find_checkpoints(hf, revision)

    def folder(self, checkpoint: Checkpoint) -> RunFolder:
        """Where what is measured of a model lies, in the layout of a run's folder."""
        return RunFolder(self.out / checkpoint.name)


def _read(text: str) -> str:
    path = Path(text)
    if not path.is_file():
        raise UserError(f"text={text} is no file")
    try:
        content = path.read_bytes().decode("utf-8")  # ends of lines stay as they are
    except UnicodeDecodeError as error:
        raise UserError(f"text={text} is no text in UTF-8: byte {error.start:,}") from None
    if not content.strip():
        raise UserError(f"text={text} holds no text")
    return content
