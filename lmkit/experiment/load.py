"""A run's model and data, rebuilt from its checkpoint."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule, WindowsDataModule
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import make
from lmkit.experiment.objects import make_data, make_model
from lmkit.runs.analysis_files import Text
from lmkit.runs.folder import RunFolder
from lmkit.runs.source import find_source, source_sha256
from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
from lmkit.training.checkpoint_files import load_best, load_checkpoint
from lmkit.training.head_module import HeadModule
from lmkit.training.language_model import LanguageModel

_CHANGED_CODE = (
    ", or measure the weights with the code as it is now, under a name of its own, by "
    "changed_code=true"
)


class LoadedRun(NamedTuple):
    """A run as restored from its checkpoint."""

    folder: RunFolder
    config: dict[str, Any]  # data.root is where the corpus was found this time
    source: Corpus
    model: HeadModule  # with the weights that the checkpoint's valid perplexity belongs to
    data: DataModule
    averaged: bool  # whether these weights are averages
    changed: tuple[str, ...] = ()  # classes of the user's own whose code is another than trained
    with_changed_code: bool = False  # whether there may be some
    data_root: str | None = None  # as asked for

    def text(self) -> Text:
        """The text that was found this time, by its hash now: a file may have been edited.

        What is measured with changed code is not the run's own, whatever the text.

        Raises: UserError when it, or the run's identity, cannot be read.
        """
        sha256 = self.source.fingerprint()
        own = self.folder.read_identity().settings.get("data_sha256")
        name = str(self.config["data"].get("root") or self.config["data"]["name"])
        if self.changed:
            codes = [str(source_sha256(target)) for target in self.changed]
            digest = hashlib.sha256("\n".join([sha256, *codes]).encode()).hexdigest()
            return Text(f"{name} (changed code: {', '.join(self.changed)})", digest, False)
        return Text(name, sha256, sha256 == own)


def as_language_model(run: LoadedRun) -> tuple[LanguageModel, WindowsDataModule]:
    """The run's model and data. Raises: UserError when it is not a language model."""
    if not isinstance(run.model, LanguageModel) or not isinstance(run.data, WindowsDataModule):
        raise UserError("it is not a language model of running text")
    return run.model, run.data


def own_classes(folder: RunFolder) -> dict[str, str]:
    """The classes of the user's own that a run was trained by, with the hashes of their sources."""
    stored = folder.read_identity().settings.get("sources", {})
    assert isinstance(stored, dict)
    return stored


def changed_classes(
    folder: RunFolder, *, allowed: bool, or_else: str = _CHANGED_CODE
) -> tuple[str, ...]:
    """The classes of the user's own whose files are others than those that the run was trained by.

    Args:
        or_else: what the message advises beside the earlier code.

    Raises: UserError when there are any, unless that is allowed; when one is not found.
    """
    stored = own_classes(folder)
    if lost := [target for target in stored if find_source(target) is None]:
        raise UserError(
            f"{folder.path}: {lost[0]}, by which the run was trained, is not found from here: put "
            f"its folder on PYTHONPATH"
        )
    changed = tuple(t for t, sha256 in stored.items() if source_sha256(t) != sha256)
    if changed and not allowed:
        raise UserError(
            f"{folder.path}: {changed[0]} has changed since the run was trained, or a file that it "
            f"imports has: bring the earlier code back{or_else}"
        )
    return changed


def restored_model(content: Mapping[str, Any]) -> tuple[HeadModule, bool]:
    """A checkpoint's model with its evaluated weights, and whether these are averages."""
    config, num_words = content["lmkit"]["config"], len(content["lmkit"]["vocabulary"])
    with torch.random.fork_rng(devices=[]):  # the weights that are drawn are none that stay
        model = make_model(config, torch.zeros(num_words, dtype=torch.long))
    return model, load_evaluated_weights(model, content)


def best_of_result(run: RunFolder) -> dict[str, Any]:
    """The best checkpoint of a finished run, whose weights its result is of."""
    return load_best(run, run.read_result().metrics["best_epoch"])


def load_run(
    path: Path | str,
    checkpoint: str,
    data_root: str | None,
    threads: int | None,
    *,
    with_changed_code: bool = False,
) -> LoadedRun:
    """Rebuilds model and data of the run in `path` from `checkpoint`, "best" or "last".

    Args:
        data_root: the folder of the corpora; None: where the run found its own.
        threads: CPU threads; None: as many as the run had.
        with_changed_code: whether classes of the user's own may have changed since.

    Raises: UserError when there is no such run, its checkpoint is damaged, its code has changed, or
        the text holds words that the model does not know.
    """
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise UserError(f"run={path} is no folder; give the folder of a run, such as runs/NAME-ID")
    changed = changed_classes(folder, allowed=with_changed_code)
    file = folder.checkpoints / f"{checkpoint}.ckpt"
    content = best_of_result(folder) if checkpoint == "best" else load_checkpoint(file)
    if "lmkit" not in content:
        raise UserError(f"{file} is no checkpoint of lmkit")
    vocabulary = content["lmkit"]["vocabulary"]
    config = with_data_in(data_root, with_trunk_beside(folder, content["lmkit"]["config"]))
    torch.set_num_threads(threads or config["threads"])
    source = make(config["data"], "data", Corpus)
    source.restore_tokenizer(content["lmkit"].get("tokenizer"))
    corpus = source.load(vocabulary)
    model, averaged = restored_model(content)
    if torch.cuda.is_available():
        model.to("cuda")
    data, code = make_data(config, corpus), (changed, with_changed_code, data_root)
    return LoadedRun(folder, config, source, model, data, averaged, *code)


def with_trunk_beside(run: RunFolder, config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration, with the run of its fixed trunk where it is now, if it has one."""
    data = config["data"]
    if not str(data.get("_target_")).endswith(".ContextsOfRun"):
        return config
    return config | {"data": data | {"folder": str(run.moved(Path(data["folder"])))}}


def with_data_in(data_root: str | None, config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration, with its corpus in another folder; None: where it was, or in
    LMKIT_DATA where it lies there now.

    Raises: UserError for a corpus that lies in no folder.
    """
    if data_root is None:
        data, text = config["data"], config["data"].get("text")  # of a trunk's contexts
        folder = str((text if isinstance(text, Mapping) else data).get("folder", "."))
        roots = (data.get("root"), os.environ.get("LMKIT_DATA"))
        was, now = (root and Path(os.path.expanduser(str(root)), folder) for root in roots)
        has_place = "root" in data and folder != "."
        if not has_place or not now or not now.is_dir() or (was and was.exists()):
            return config
        data_root = roots[1]
    if "root" not in config["data"]:
        raise UserError(f"data={config['data']['name']} has no folder: leave out data_root")
    return config | {"data": config["data"] | {"root": data_root}}
