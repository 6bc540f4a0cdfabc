"""The settings of runs: what distinguishes runs of one head, and how tables show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.finished import FinishedRun
from lmkit.runs.identity import without_defaults
from lmkit.runs.names import FINETUNE, RunNames

Settings = Mapping[str, object]  # values by dotted option

# They change no number's meaning, must equal the trunk's, or are in the head's name.
_IGNORED = (
    "data_sha256", "identity_version", "device_kind", "threads", "seed",
    "head.in_dim", "head.emb_dim", "head.chunk_mb", "head.loss",
    "head.mixture.in_dim", "head.mixture.emb_dim", "head.mixture.hidden_dim",
    "head.mixture.out_dim", "head.mixture.num_layers", "head.transform.frozen",
    "trainer.deterministic", "windows.eval_length", "windows.eval_batch_size",
)  # fmt: skip
_SHORT = {
    "head.mixture.num_experts": "K",
    "head.mixture.latent_dropout": "latent dropout",
    "head.num_experts": "K",
    "head.num_partitions": "J",
}
_SOURCES = "sources."  # hashes, by the classes of a user
_TRUNK = "trunk._target_"
_CALLBACK = "callback"  # why a run stopped, where that was neither its epochs nor its patience
_PATIENCE = "lmkit.training.callbacks.stopping.Patience"
_MOST_IN_LABEL = 4  # differences


def settings_of(run: FinishedRun) -> dict[str, object]:
    """All that decides the numbers of a run except its seed, by dotted option."""
    return deciding_settings(run.settings) | _beside_the_identity(run)


def settings_but_defaults(run: FinishedRun) -> dict[str, object]:
    """`settings_of`, without the options at their default: one may be there or left out."""
    return deciding_settings(without_defaults(run.settings)) | _beside_the_identity(run)


def _beside_the_identity(run: FinishedRun) -> dict[str, object]:
    """How long a run could train and what ended it; the experiment that it finetunes. Each seed
    finetunes another run.
    """
    budget, experiment = run.result.budget, run.result.experiment.removesuffix(FINETUNE)
    return {
        "max_epochs": budget.max_epochs,
        "patience": budget.patience,
        "stopping.min_delta": budget.min_delta,
        "finetuned": experiment if "finetuned_from" in run.settings else False,
        "stopping._target_": _stopping(run),
        "by_callback": budget.stopped == _CALLBACK,
    }


def _stopping(run: FinishedRun) -> str:
    """The class that ends the run early, as far as the configuration tells."""
    try:
        return str(run.config()["stopping"]["_target_"])
    except (UserError, OSError, KeyError, TypeError):
        return _PATIENCE


def deciding_settings(payload: Mapping[str, object]) -> dict[str, object]:
    """What in an identity's payload decides a run's numbers, except its seed, by dotted option."""
    settings = {
        option: value
        for option, value in _leaves(payload, "")
        if option not in _IGNORED and not option.startswith("finetuned_from.")
    }
    settings["finetuned"] = "finetuned_from" in payload  # a different run per seed
    return settings


def labels(names: Sequence[RunNames], settings: Sequence[Settings]) -> list[str]:
    """The name of each head, with the settings in which it differs from others of that name.

    Where there are more than a few differences, the trunk's name stands for them if each head has a
    trunk of another class, whose options come with it; otherwise all but the first get a number.

    Args:
        names: of the runs with these heads.
        settings: theirs, in the same order.
    """
    labels = []
    for run_names, run_settings in zip(names, settings, strict=True):
        head = run_names.head
        peers = [s for n, s in zip(names, settings, strict=True) if n.head == head]
        options = differing_settings(peers)
        options = [o for o in options if not _is_of_one_class(o, peers)]
        texts = list(dict.fromkeys(_in_words(o, run_settings, run_names, peers) for o in options))
        if len(texts) > _MOST_IN_LABEL and len({s.get(_TRUNK) for s in peers}) == len(peers):
            texts = [run_names.trunk]
        elif len(texts) > _MOST_IN_LABEL:
            index = next(i for i, peer in enumerate(peers) if peer is run_settings)
            texts = [*texts[: _MOST_IN_LABEL - 1], f"… #{index + 1}"]
        labels.append(f"{head} ({', '.join(texts)})" if texts else head)
    return labels


def differing_settings(settings: Iterable[Settings]) -> list[str]:
    """The options whose value is not the same in all of them, those of the head first.

    The source of a class counts only where all have that class; elsewhere `_target_` differs.
    """
    first, *others = list(settings)
    options = dict.fromkeys(option for each in (first, *others) for option in each)
    differing = [
        option
        for option in options
        if any(each.get(option) != first.get(option) for each in others)
        and not (
            option.startswith(_SOURCES) and any(option not in each for each in (first, *others))
        )
    ]
    return sorted(differing, key=lambda option: not option.startswith("head."))


class Difference(NamedTuple):
    """Something in which two configurations differ."""

    option: str  # "" if it is not an option
    text: str  # `optimizer.lr=5 (20)`: what one has and, in brackets, the other


def differences_in_words(
    options: Iterable[str], mine: Settings, theirs: Settings
) -> list[Difference]:
    """Options with their value in one run and, in brackets, in another.

    If a section's classes differ, options of only one of them are left out.
    """
    return [
        Difference(
            option,
            f"{option.removesuffix('._target_')}={_value(option, mine)} ({_value(option, theirs)})",
        )
        for option in options
        if not (
            (option in mine) != (option in theirs)
            and mine.get(target := f"{option.rpartition('.')[0]}._target_") != theirs.get(target)
        )
    ]


def _value(option: str, settings: Settings) -> str:
    """As it would be typed; of a class only its name, of a source its first digits."""
    value = settings.get(option, "absent")
    if option.endswith("_target_"):
        return str(value).rpartition(".")[2]
    if option.startswith(_SOURCES):
        return str(value)[:8]
    return "null" if value is None else str(value)


def _in_words(option: str, settings: Settings, names: RunNames, peers: Sequence[Settings]) -> str:
    """`c=−1.5`, `lr 0.001`, `AdamW`: an option and its value, or the name of what it makes."""
    if option.startswith("trigger."):
        return names.trigger
    if option == _TRUNK:
        return names.trunk
    value = settings.get(option)
    if option == "finetuned":
        return _chain(str(value)) if value else "not finetuned"
    if option == "by_callback":
        return "ended by a callback" if value else "not ended by a callback"
    if option.startswith(_SOURCES):
        return f"source {str(value)[:8]}"
    if option.endswith("_target_"):
        paths = {str(peer.get(option)) for peer in peers}
        is_told = len({path.rpartition(".")[2] for path in paths}) == len(paths)
        if value is None:
            return "none"
        return str(value).rpartition(".")[2] if is_told else str(value)
    name = _SHORT.get(option, option.rpartition(".")[2].replace("_", " "))
    is_symbol = len(name) == 1  # `c=−1.5`, but `lr 0.001`
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, float | int):
        return f"{name}{'=' if is_symbol else ' '}{f'{value}'.replace('-', '−')}"
    return f"{name} {'none' if value is None else value}"


def _chain(experiment: str) -> str:
    """`finetuned from penn_mos_nt`, `finetuned twice from penn_mos_nt`."""
    base = experiment
    while base.endswith(FINETUNE):
        base = base.removesuffix(FINETUNE)
    times = 1 + (len(experiment) - len(base)) // len(FINETUNE)
    how_often = {1: "", 2: " twice"}.get(times, f" {times} times")
    return f"finetuned{how_often} from {base}"


def _is_of_one_class(option: str, peers: Sequence[Settings]) -> bool:
    """Whether some of them lack the option, since their section is of another class."""
    if all(option in peer for peer in peers):
        return False
    target = f"{option.rpartition('.')[0]}._target_"
    return len({peer.get(target) for peer in peers}) > 1


def _leaves(value: object, option: str) -> Iterator[tuple[str, object]]:
    """Every value below `value` that is not a mapping, with its dotted option."""
    if isinstance(value, Mapping):
        prefix = f"{option}." if option else ""
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}{key}")
    else:
        yield option, tuple(value) if isinstance(value, list) else value
