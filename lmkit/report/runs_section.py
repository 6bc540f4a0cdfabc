"""The runs of the report: their groups, where they were trained, and by which code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lmkit.comparison.cells import MEAN_SD, listed, spread_cell
from lmkit.comparison.corpora import data_in_words, data_of
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.settings import differing_settings
from lmkit.presentation.quantities import option_text
from lmkit.presentation.section import Section
from lmkit.presentation.tables import (
    DASH,
    Column,
    Entry,
    Heading,
    Row,
    Table,
    counted,
    number,
    table_over,
    whole,
)
from lmkit.runs.finished import FinishedRun, changed_since

_OfGroup = tuple[Facts, FinishedRun]


def runs_section(study: Study) -> Section:
    """Every run in full precision, and what produced them."""
    return Section(
        "runs",
        "Runs",
        f"{counted(len(study.runs), 'run')} of "
        f"{counted(len(study.groups), 'group')}; a group is runs that differ only in their seed. "
        f"{_language_made_up(study)} {_changed(study)}".rstrip(),
        [_settings_table(study), _runs_table(study), _origins_table(study)],
    )


def _changed(study: Study) -> str:
    """A sentence where the code of some runs has changed since."""
    changed = changed_since(study.runs)
    return changed and f"{changed}."


def _language_made_up(study: Study) -> str:
    """A warning if the data were generated; nothing if they were read from files."""
    if _reads_files(study):
        return ""
    return (
        "Their language is made up: a program drew its text, so that no figure here compares with "
        "a published one."
    )


def _reads_files(study: Study) -> bool:
    """Whether the corpus is in files, as far as a run's configuration tells."""
    data = _data(study)
    return not data or "root" in data


def _data(study: Study) -> dict[str, object]:
    return data_of(study.runs)


def _corpus_in_words(study: Study) -> str:
    """A sentence on the data of all groups, as far as the runs tell."""
    texts = data_in_words({"num_words": study.corpus.num_words} | _data(study))
    return f"The data of all of them: {texts}. " if texts else ""


def _settings_table(study: Study) -> Table:
    """What decides the numbers of each group."""

    def of(entry: Callable[[Mapping[str, object]], str]) -> Callable[[Facts], str]:
        return lambda f: entry(f.settings)

    columns: dict[Heading, Callable[[Facts], Entry]] = {
        "head": lambda f: f.label,
        "options of the head": of(lambda options: _in_words(options, _head_options(options))),
        "trunk and sizes": lambda f: f"{f.names.trunk}: {_in_words(f.settings, _SIZES)}",
        "dropouts": of(lambda options: _in_words(options, _DROPOUTS)),
        "optimizer": of(_optimizer),
        "penalties": of(lambda options: _in_words(options, _PENALTIES)),
        "batches": of(lambda options: _in_words(options, _WINDOWS)),
        "averaging": lambda f: f.trigger + (", finetuned" if f.settings.get("finetuned") else ""),
        "most epochs": of(_budget),
        Column("epochs trained", MEAN_SD): lambda f: spread_cell(f.spread("epochs"), 0),
        "seeds": lambda f: ", ".join(str(run.seed) for run in f.runs),
    }
    caption = (
        f"What decides the numbers of each group on {study.short}. {_corpus_in_words(study)}"
        "Whatever else was set is in config.yaml of each run."
    )
    notes = list(_further_differences(study))
    title = "What decides the numbers"
    rest = study.rest_from(study.groups)
    return table_over(study.groups, "settings", title, caption, columns, notes, rest_from=rest)


def _further_differences(study: Study) -> Iterator[str]:
    """Per head, the options in which its groups differ and that the table does not show."""
    by_head: dict[str, list[Mapping[str, object]]] = {}
    for group in study.groups:
        by_head.setdefault(group.head.name, []).append(group.settings)
    for name, settings in by_head.items():
        further = [
            f"{option} ({', '.join(_values(option, settings))})"
            for option in differing_settings(settings)
            if option not in {*_SHOWN, *(o for each in settings for o in _head_options(each))}
            and not option.startswith(("trigger.", "sources."))
        ]
        if further:
            yield f"The groups of {name} also differ in {listed(further)}"


_SIZES = {
    "trunk.emb_dim": "embedding",
    "trunk.hidden_dim": "hidden",
    "trunk.num_layers": "layers",
    "head.mixture.num_experts": "components",
}
_DROPOUTS = {
    "trunk.embed_dropout": "word",
    "trunk.input_dropout": "input",
    "trunk.hidden_dropout": "hidden",
    "trunk.output_dropout": "output",
    "trunk.weight_dropout": "weight",
    "head.mixture.latent_dropout": "latent",
}
_PENALTIES = {"objective.ar_weight": "AR", "objective.tar_weight": "TAR"}
_WINDOWS = {"windows.batch_size": "size", "windows.bptt": "bptt"}
_OPTIMIZER = {
    "optimizer.lr": "lr",
    "module.transform_lr": "transform's lr",
    "optimizer.weight_decay": "weight decay",
    "trainer.gradient_clip_val": "clip",
}
_SHOWN = {
    *_SIZES, *_DROPOUTS, *_PENALTIES, *_WINDOWS, *_OPTIMIZER,
    "trunk._target_", "optimizer._target_", "finetuned", "max_epochs", "patience",
}  # fmt: skip


def _head_options(options: Mapping[str, object]) -> dict[str, str]:
    """The names in words of the head's options without a column."""
    return {
        option: option.rpartition(".")[2].replace("_", " ")
        for option in options
        if option.startswith("head.") and option not in _SHOWN and not option.endswith("_target_")
    }


def _values(option: str, settings: Sequence[Mapping[str, object]]) -> list[str]:
    """Each value of the option once."""
    return list(dict.fromkeys(option_text(each.get(option)) for each in settings))


def _in_words(options: Mapping[str, object], names: Mapping[str, str]) -> str:
    """The options that the group has, by their names in words: `hidden 1,150, layers 3`."""
    texts = [
        f"{name} {option_text(options[option])}"
        for option, name in names.items()
        if option in options
    ]
    return ", ".join(texts) or DASH


def _optimizer(options: Mapping[str, object]) -> str:
    kind = str(options.get("optimizer._target_", "")).rpartition(".")[2]
    return f"{kind} {_in_words(options, _OPTIMIZER)}".strip()


def _budget(options: Mapping[str, object]) -> str:
    """`500`, or with a patience: `500, patience 10`."""
    most, patience = options.get("max_epochs"), options.get("patience")
    text = "any number" if most is None else option_text(most)
    return text if patience is None else f"{text}, patience {option_text(patience)}"


def _runs_table(study: Study) -> Table:
    def perplexity(split: str) -> Callable[[_OfGroup], Entry]:
        return lambda of: number(of[1].metric(f"{split}_ppl"))

    columns: dict[Heading, Callable[[_OfGroup], Entry]] = {
        "run": lambda of: of[1].name,
        "head": lambda of: of[0].label,
        "seed": lambda of: whole(of[1].seed),
        "epochs": lambda of: whole(of[1].result.budget.epochs),
        "best epoch": lambda of: whole(of[1].metric("best_epoch")),
        **{f"{split} perplexity": perplexity(split) for split in ("train", "valid", "test")},
        "Press rank": lambda of: whole(of[1].test_spectrum.get("press_rank")),
        "over contexts": lambda of: whole(of[1].test_spectrum.get("num_contexts")),
        "s / epoch": lambda of: number(of[1].cost("seconds_per_epoch"), 1),
    }
    runs = [(group, run) for group in study.groups for run in group.runs]
    return table_over(runs, "runs", "Every run", f"Every run on {study.short}.", columns)


def _origins_table(study: Study) -> Table:
    origins = Counter(map(_origin, study.runs))
    rows: list[Row] = [[*origin, count] for origin, count in origins.most_common()]
    columns = ("code", "torch", "device", "threads", "runs")
    caption = "Code and machines of the runs."
    unknown = sum(n for origin, n in origins.items() if origin[0] == origin[2] == "unknown")
    notes = [f"{counted(unknown, 'run')} of unknown origin: nothing was recorded of it"]
    return Table("origins", "What made them", caption, columns, rows, notes if unknown else ())


def _origin(run: FinishedRun) -> tuple[str, str, str, str]:
    """Code, version of torch, device and threads."""
    made_by: Mapping[str, Any] = run.result.provenance
    git, hardware = made_by.get("git") or {}, made_by.get("hardware") or {}
    code = str(git.get("commit", "unknown"))[:10] + (" and changes" if git.get("dirty") else "")
    devices = hardware.get("devices") or [hardware.get("cpu") or "unknown"]
    torch = (made_by.get("packages") or {}).get("torch")
    return code, str(torch), ", ".join(map(str, devices)), str(made_by.get("threads"))
