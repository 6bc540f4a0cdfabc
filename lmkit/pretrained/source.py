"""Which pretrained models a user selects, and the text that they read. A model is given as

    models/gpt2                    a folder with a model, as `save_pretrained` writes it
    models/gpt2-ptb                a folder with checkpoints of one model, such as checkpoint-500
    "models/gpt2-ptb/step*"        a pattern: each match is one of the above
    EleutherAI/pythia-70m          a name on Hugging Face's hub, at one revision or several

Imports no torch and no transformers.
"""

import glob
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmkit.errors.user_error import (
    UserError,
    require_count,
    require_folder,
    require_names,
    require_text,
)
from lmkit.runs.folder import RunFolder

CONFIG = "config.json"
READER_VERSION = 3  # raised when models read a text in another way, or what is trained changes
OPTIONS = ("hf", "text", "revision", "window", "stride", "out")  # of conf/pretrained.yaml
_STEP = re.compile(r"(?:checkpoint|step|epoch)[-_]?(\d+)$")


class Checkpoint(NamedTuple):
    """One pretrained model, at one point of its training."""

    place: str  # the folder, or the name on the hub
    revision: str | None  # on the hub
    name: str  # in tables, and of the folder for what is measured
    step: int | None  # of training, where the folder or the revision says so

    @property
    def family(self) -> str:
        """What the checkpoints of one model have in common."""
        return self.name.partition("@")[0]

    @property
    def is_local(self) -> bool:
        return Path(self.place).is_dir()


def find_checkpoints(places: object, revisions: object, option: str = "hf=") -> list[Checkpoint]:
    """The checkpoints that the options hf and revision select, by model, then by step; those that
    name none, such as `main`, come last.

    Args:
        option: that names the places, for messages.

    Raises: UserError for a place that is none, or two checkpoints of one name.
    """
    texts = require_names(option.removesuffix("="), places, "models")
    wanted = [] if revisions is None else require_names("revision", revisions, "revisions")
    found = [each for text in texts for each in _at(text, wanted, option)]
    found.sort(key=lambda each: (each.family, each.step is None, each.step or 0))
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(
            f"{option}{places} means two models with the name {twice}: measure them apart, each "
            f"with an out=FOLDER of its own"
        )
    return found


def files_sha256(folder: str) -> str:
    """SHA-256 (hex) of the files in a folder that decide what the model there computes."""
    digest = hashlib.sha256()
    weights = sorted(Path(folder).glob("*.safetensors"))
    for path in [Path(folder) / CONFIG, Path(folder) / "tokenizer.json", *weights]:
        if path.exists():
            digest.update(path.name.encode())
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def _at(text: str, revisions: Sequence[str], option: str) -> list[Checkpoint]:
    folders = [Path(text)] if Path(text).exists() else [Path(p) for p in sorted(glob.glob(text))]
    if folders and revisions:
        raise UserError(f"revision is of names on the hub, but hf={text} is a folder")
    if folders:
        found = [each for folder in folders for each in _in_folder(folder)]
        if not found:
            raise UserError(
                f"{option}{text} holds no {CONFIG}: give a folder that save_pretrained wrote, or "
                f"one that holds such folders"
            )
        return found
    if re.search(r"^[./~]|/.*/|[*?\[]|/$", text):
        raise UserError(f"{option}{text} is no folder")
    name = text.rpartition("/")[2]
    if not revisions:
        return [Checkpoint(text, None, name, None)]
    return [Checkpoint(text, each, f"{name}@{each}", _step(each)) for each in revisions]


def _in_folder(folder: Path) -> Iterator[Checkpoint]:
    """The model in a folder, or those in its subfolders."""
    if (folder / CONFIG).is_file():
        path = folder.resolve()
        step = _step(path.name)
        name = path.name if step is None else f"{path.parent.name}@{path.name}"
        yield Checkpoint(str(folder), None, name, step)
    elif folder.is_dir():
        for each in sorted(folder.iterdir()):
            if (each / CONFIG).is_file():
                yield from _in_folder(each)


def _step(name: str) -> int | None:
    numbered = _STEP.search(name)
    return int(numbered[1]) if numbered else None


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
        require_text("text", text)
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
        # ends of lines stay as they are
        content = path.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UserError(f"text={text} is no text in UTF-8: byte {error.start:,}") from None
    if not content.strip():
        raise UserError(f"text={text} holds no text")
    return content
