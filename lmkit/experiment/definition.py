"""A run's identity and folder, found before any object is made and without torch."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmkit.data.corpus import Corpus, Splits
from lmkit.errors.user_error import (
    NotHereError,
    UserError,
    parameters,
    require_choice,
    require_count,
    require_folder,
    require_number,
    require_seed,
    require_threads,
)
from lmkit.experiment.make import make
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import RunIdentity, identity
from lmkit.runs.result import Budget
from lmkit.runs.retention import KEEPS
from lmkit.runs.source import find_source, own_files, sha256_of_file

ACCELERATORS = ("auto", "cpu", "gpu")
# Linux device files of NVIDIA GPUs, Tegra, AMD GPUs, and GPUs within WSL
_GPU_DEVICES = ("nvidia*", "nvhost*", "nvmap", "kfd", "dxg")


@dataclass(frozen=True)
class RunDefinition:
    """What a run is, before any of its objects is made."""

    config: dict[str, Any]
    source: Corpus  # not yet read
    data_sha256: str
    identity: RunIdentity
    folder: RunFolder
    budget: Budget
    accelerator: str

    def loaded(self) -> Splits[Any]:
        """The data. Raises: UserError as `Corpus.loaded` and `require_same_data`."""
        splits = self.source.loaded()
        self.require_same_data()
        return splits

    def require_same_data(self) -> None:
        """Raises UserError if the data are no longer those that the identity names."""
        if self.source.fingerprint() != self.data_sha256:
            raise UserError(
                f"the files of data={self.source.name} have changed since the run began: once they "
                f"are as before, the same command goes on with it"
            )

    def own_files(self) -> dict[Path, str]:
        """The files of the user's own classes, with their hashes."""
        sources = filter(None, map(find_source, self.identity.sources))
        return {f: sha256_of_file(f) for source in sources for f in own_files(source.file)}


def require_unedited(files: Mapping[Path, str]) -> None:
    """Raises NotHereError if a file has another hash than the one given: what was imported
    meanwhile may not be what the identity names.
    """
    for file, sha256 in files.items():
        if sha256_of_file(file) != sha256:
            raise NotHereError(
                f"{file} was edited while this run started: type the command again, which is "
                f"another run"
            )


def define(
    config: dict[str, Any],
    has_gpu: bool | None = None,
    known: dict[str, tuple[Corpus, str]] | None = None,
) -> RunDefinition:
    """Checks the options that no object checks, and finds the run's identity and folder.

    Args:
        config: the composed configuration as plain data.
        has_gpu: whether the machine that trains the run has a GPU; None: it is this one.
        known: corpora and their fingerprints by their sections, so that many runs read each once.
    """
    check_plain_options(config)
    known, section = {} if known is None else known, json.dumps(config["data"], sort_keys=True)
    if section not in known:
        source = make(config["data"], "data", Corpus)
        known[section] = source, source.fingerprint()
    source, sha256 = known[section]
    accelerator = _accelerator(config["trainer"], has_gpu)
    kind = "cuda" if accelerator == "gpu" else "cpu"
    named = identity(config, sha256, kind, _options_of_its_own(source, config["data"]))
    folder = RunFolder.of(config["runs_dir"], config["name"], named)
    return RunDefinition(config, source, sha256, named, folder, Budget.of(config), accelerator)


def _options_of_its_own(source: Corpus, section: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a user's corpus adds to lmkit's, where it takes over the fingerprint."""
    kind = type(source)
    base = next(each for each in kind.__mro__ if each.__module__.startswith("lmkit."))
    if kind.fingerprint is not getattr(base, "fingerprint", None):
        return {}  # its own
    takes = parameters(kind)
    return {
        option: value
        for option, value in section.items()
        if option not in ("_target_", "_recursive_", "_convert_", *parameters(base))
        and not (option in takes and takes[option].default == value)
    }


def check_plain_options(config: Mapping[str, Any]) -> None:
    """Raises UserError for an option of no object that has a wrong value."""
    require_folder("runs_dir", config["runs_dir"])
    require_threads(config["threads"])
    require_seed("seed", config["seed"])
    require_choice("keep", config["keep"], KEEPS)
    wanted = config["trainer"].get("accelerator", "auto")
    require_choice("trainer.accelerator", wanted, ACCELERATORS)
    for option in ("max_epochs", "patience"):
        if config[option] is not None:
            require_count(option, config[option])
    stopping = config["stopping"] if isinstance(config["stopping"], Mapping) else {}
    for option in ("epochs", "n"):
        given = stopping.get(option, config["patience"])
        if given != config["patience"] and str(stopping.get("_target_")).startswith("lmkit."):
            value = "null" if given is None else given
            raise UserError(f"stopping.{option} is the option patience: set patience={value}")
    # what a finished run is compared with, before there is an object that would refuse it
    require_number("stopping.min_delta", Budget.of(config).min_delta)


def _accelerator(trainer: Mapping[str, Any], has_gpu: bool | None) -> str:
    wanted = trainer.get("accelerator", "auto")
    if has_gpu is None:
        has_gpu = wanted != "cpu" and _has_gpu()
    if wanted == "gpu" and not has_gpu:
        raise NotHereError("trainer.accelerator=gpu needs a CUDA device, and there is none here")
    on_gpu = has_gpu and wanted != "cpu"
    if trainer.get("precision") == "tf32" and not on_gpu:
        raise NotHereError("trainer.precision=tf32 needs a GPU; on a CPU use 32-true or bf16-mixed")
    return "gpu" if on_gpu else "cpu"


def _has_gpu() -> bool:
    """Whether torch finds a GPU. It is not imported where the system has no such device."""
    if sys.platform == "linux" and "torch" not in sys.modules:
        if not any(True for name in _GPU_DEVICES for _ in Path("/dev").glob(name)):
            return False
    import torch  # which takes a second

    return torch.cuda.is_available()
