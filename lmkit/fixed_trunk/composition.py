"""What `trunk=fixed trunk.of=TRUNK` means: the configuration of a head alone.

The trunk's contexts replace the section `data`, and its sizes replace the options that find it. So
a run's configuration holds all that training and evaluation need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from lmkit.errors.user_error import UserError, require_choice, require_text
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_run

if TYPE_CHECKING:  # it brings torch
    from lmkit.pretrained.loading import ModelFacts

TRUNK = "lmkit.fixed_trunk.trunk.FixedTrunk"
_CONTEXTS = "lmkit.fixed_trunk.corpus.ContextsOf"  # of a run, or of a pretrained model
_TEXT = "lmkit.data.corpus.TextCorpus"
_DOC = "lmkit.heads.direct_output.DirectOutputConnection"
_HF = "hf:"
# of SGD, by what the contexts are of: those of pretrained models are larger, and a decoder that
# starts as their own would leave it for good
LR_OF_RUN, LR_OF_PRETRAINED = 20.0, 0.1
_FINDS = ("of", "dtype", "window", "stride")  # options of the section that find the contexts
# options of a text that a pretrained model decides, with their defaults
_OF_TOKENIZER = {"tokenizer": "spaces", "tokenizer_of": None, "vocab_size": None}


def implied(arguments: Sequence[str]) -> list[str]:
    """The overrides plus the experiment that trunk=fixed needs, unless they choose one."""
    chosen = {argument.partition("=")[0].lstrip("+") for argument in arguments}
    if "trunk=fixed" in arguments and not {"experiment", "multirun_sweeps"} & chosen:
        return ["experiment=fixed_trunk", *(each for each in arguments if each != "trunk=fixed")]
    return list(arguments)


def filled_in(config: DictConfig) -> DictConfig:
    """A composed configuration with the contexts of `trunk.of` filled in; unchanged without one.

    Raises: UserError naming the option that is wrong.
    """
    trunk, start = config.get("trunk"), OmegaConf.select(config, "head.start")
    is_fixed = isinstance(trunk, DictConfig) and trunk.get("_target_") == TRUNK
    if not is_fixed:
        _require_own_parts(config)
        return config
    if "start" not in (config.get("head") or {}):
        raise UserError(
            "trunk=fixed needs experiment=fixed_trunk or one that builds on it, and this one does "
            "not: leave experiment= out"
        )
    config = deepcopy(config)  # a sweep composes further points in this process
    OmegaConf.set_struct(config, False)
    if OmegaConf.is_missing(trunk, "of"):
        raise UserError("trunk.of is missing: give a run, such as runs/NAME-ID, or hf:FOLDER")
    require_text("trunk.of", trunk.of)
    require_choice("head.start", start, ("fresh", "trunk"))
    _require_parts_of_a_head(config)
    trunk_of = trunk.of
    source_of = _pretrained_source if trunk_of.startswith(_HF) else _run_source
    data, emb_dim, cap = source_of(config)
    sizes = {"emb_dim": emb_dim, "out_dim": data["out_dim"]}
    left = {key: value for key, value in trunk.items() if key not in _FINDS}
    OmegaConf.update(config, "trunk", left | sizes, merge=False)
    OmegaConf.update(config, "data", data, merge=False)
    if config.get("sgd_lr") is None:
        config.sgd_lr = LR_OF_PRETRAINED if trunk_of.startswith(_HF) else LR_OF_RUN
    if trunk.get("rms") is not None:
        section = {"_target_": "lmkit.fixed_trunk.start.ContextScale"}
        OmegaConf.update(config, "callbacks.context_scale", section, force_add=True)
    if start == "trunk":
        section = {"_target_": "lmkit.fixed_trunk.start.HeadStart"}
        OmegaConf.update(config, "callbacks.head_start", section, force_add=True)
        if cap is not None:
            capped = {
                "_target_": "lmkit.fixed_trunk.start.AfterSoftCap",
                "cap": cap,
                "transform": config.head.transform,
            }
            OmegaConf.update(config, "head.transform", capped, merge=False)
    return config


def _require_parts_of_a_head(config: DictConfig) -> None:
    """Raises UserError for a part that needs more of the trunk than its contexts."""
    if OmegaConf.select(config, "head.mixture._target_") == _DOC:
        raise UserError(
            "head/mixture=doc takes the outputs of all layers, and trunk=fixed has those of the "
            "last: choose another mixture"
        )
    for name in ("ar_weight", "tar_weight"):
        if OmegaConf.select(config, f"objective.{name}"):
            raise UserError(
                f"objective.{name} regularises the trunk's output, and trunk=fixed does not train "
                f"it: leave it at 0"
            )


def _require_own_parts(config: DictConfig) -> None:
    """Raises UserError for a part that only a fixed trunk could provide."""
    if OmegaConf.select(config, "head.start") == "trunk":
        raise UserError("head.start=trunk needs trunk=fixed, which provides the decoder")
    if OmegaConf.select(config, "data.name") == "of_trunk":
        raise UserError("data=of_trunk is for trunk=fixed trunk.of=RUN, whose text it is")


def _run_source(config: DictConfig) -> tuple[dict[str, Any], int, float | None]:
    """The section that makes a run's contexts, and `emb_dim`; its logits have no cap."""
    trunk, data = config.trunk, config.data
    if (Path(trunk.of) / "config.json").is_file():
        raise UserError(f"trunk.of={trunk.of} is no run: is it a model? trunk.of=hf:{trunk.of}")
    if "_target_" in data:
        raise UserError(
            f"trunk.of={trunk.of} is a run with its own text: leave out data= (data.root=FOLDER "
            f"gives the folder of the corpora)"
        )
    for option, value in data.items():
        if option != "root" and (option, value) != ("name", "of_trunk"):  # as in data=of_trunk
            raise UserError(f"data.{option} is for trunk.of=hf:FOLDER; a run has its own text")
    for option in ("window", "stride"):
        if trunk[option] is not None:
            raise UserError(f"trunk.{option} is for trunk.of=hf:FOLDER; a run has its own windows")
    place, moved = trunk.of, Path(config.runs_dir, Path(trunk.of).name)  # with the folder of runs
    if not Path(place).exists() and moved.is_dir():
        place = str(moved)
    folder = select_run("trunk.of", place, config.runs_dir).folder
    try:
        stamp = folder.best.stat().st_mtime_ns
    except FileNotFoundError:
        stamp = 0
    weights_sha256, trained = _read_run(str(folder.path.resolve()), stamp)
    _require_fit(folder.path, trained)
    text = dict(trained["data"])
    of = f"{trained['name']}, seed {trained['seed']}"
    section = {
        "_target_": f"{_CONTEXTS}Run",
        "_recursive_": False,
        "name": folder.path.name,
        "title": f"the contexts of {of}",
        "short_title": f"the trunk of {of}",
        "folder": str(folder.path.resolve()),
        "weights_sha256": weights_sha256,
        "out_dim": trained["trunk"]["out_dim"],
        "eval_length": trained["windows"]["eval_length"],
        "dtype": trunk.dtype,
        "text": text,
    }
    if "root" in text:
        section["root"] = _root_now(data.root, trained)
    elif data.root is not None:
        raise UserError(
            f"data.root={data.root} is for a text in files, and that of {folder.path} is in none: "
            f"leave it out"
        )
    return section, trained["trunk"]["emb_dim"], None


def _root_now(data_root: str | None, trained: dict[str, Any]) -> str | None:
    from lmkit.experiment.load import with_data_in  # brings torch

    root: str | None = with_data_in(data_root, trained)["data"]["root"]
    return root


def _require_fit(run: Path, trained: Mapping[str, Any]) -> None:
    """Raises UserError unless a run, of this configuration, can be a trunk that is fixed."""
    if trained["trunk"].get("_target_") == TRUNK:
        raise UserError(f"{run} is itself a head on a fixed trunk: give that trunk's run")
    if "eval_length" not in trained["windows"]:
        raise UserError(f"{run} is not a language model of running text")
    for option in ("emb_dim", "out_dim"):
        if option not in trained["trunk"]:  # of a class of the user's
            raise UserError(
                f"{run} has no trunk.{option}: a trunk that is to be fixed must take its sizes as "
                f"options"
            )


@lru_cache
def _read_run(folder: str, _stamp: int) -> tuple[str, dict[str, Any]]:
    """Digest of the weights, and configuration, of a run. Args: _stamp: when they were written."""
    from lmkit.experiment.load import best_of_result  # brings torch
    from lmkit.training.callbacks.asgd_switch import evaluated_sha256

    content = best_of_result(RunFolder(Path(folder)))
    return evaluated_sha256(content), content["lmkit"]["config"]


def _pretrained_source(config: DictConfig) -> tuple[dict[str, Any], int, float | None]:
    """The section that makes a model's contexts, `emb_dim`, and the cap on its own logits."""
    from lmkit.pretrained.windows import window_and_stride  # brings torch

    trunk, data = config.trunk, config.data
    place = trunk.of.removeprefix(_HF)
    if data.get("_target_") != _TEXT:
        raise UserError(
            f"trunk.of={trunk.of} needs a text: data=penn, data=wikitext-2, or data=text "
            f"data.root=FOLDER; the model's own tokenizer is used"
        )
    for option, default in _OF_TOKENIZER.items():
        if data.get(option, default) != default:
            raise UserError(
                f"data.{option} does not go with trunk.of={trunk.of}: its own tokenizer is used"
            )
    facts, weights_sha256, is_local = _read_pretrained(place)
    name = Path(facts.folder).name if is_local else place.replace("/", "--")
    text = OmegaConf.to_container(data, resolve=True)
    assert isinstance(text, dict)
    text |= {"tokenizer": "hf", "tokenizer_of": facts.folder}
    window, stride = window_and_stride(
        trunk.window, trunk.stride, facts.longest, facts.prefix, "trunk."
    )
    of = f"{name} on {text.get('short_title') or text['name']}"
    section = {
        "_target_": f"{_CONTEXTS}Pretrained",
        "_recursive_": False,
        "name": f"{name}-{text['name']}",
        "title": f"the contexts of {of}",
        "short_title": f"the trunk of {of}",
        "folder": facts.folder,
        "num_words": facts.num_words,
        "prefix": list(facts.prefix),
        "weights_sha256": weights_sha256,
        "out_dim": facts.dim,
        "window": window,
        "stride": stride,
        "dtype": trunk.dtype,
        "text": text,
        "root": text["root"],
    }
    return section, facts.dim, facts.cap


@lru_cache
def _read_pretrained(place: str) -> tuple[ModelFacts, str, bool]:
    """Facts and digest of a pretrained model, and whether it is a folder; one of the hub is
    fetched.
    """
    from lmkit.data.subwords import FILE
    from lmkit.pretrained.loading import facts_of
    from lmkit.pretrained.source import files_sha256, find_checkpoints

    option = f"trunk.of={_HF}"
    (*others, checkpoint) = find_checkpoints(place, None, option)
    if others:
        raise UserError(f"{option}{place} selects {len(others) + 1} models: give one")
    facts = facts_of(checkpoint, option)
    if not (Path(facts.folder) / FILE).is_file():
        raise UserError(
            f"{option}{place} has no {FILE}; "
            f"AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) writes it"
        )
    return facts, files_sha256(facts.folder), checkpoint.is_local
