"""What was published, as one table, and which runs are the same experiments.

`published.csv`: paper, table, row, quantity, value, spread, n, experiment, remark. A quantity that
the frame has is named as its column, one that an analysis measures as its `in_print` names it; of
a p, the remark says against which experiment. An experiment is one of conf/experiment,
`NAME_finetune` after finetuning, with the options that the row changes after a space. Sizes of
benchmarks, values of options and scores of dialogue (of another split than ours) are there to be
looked up: no page shows them.
`published_curves.csv` has logs of trainings by others, by epoch; `published_curve_logs.csv` says
whose they are, which experiment they trained, and in what they differ from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from lmkit.results.frame import (
    PERPLEXITIES,
    SAME,
    Row,
    add_defaults,
    flat,
    is_option,
    without_the_trunks_width,
)
from lmkit.results.labels import SOURCES
from lmkit.runs.identity import identity
from lmkit.runs.names import FINETUNE

# From an experiment of conf/experiment, or `NAME_finetune`, to its configuration. Entry points pass
# it down, since only they compose.
Compose = Callable[[str], Mapping[str, Any]]

_OWN_CLASS = "own class"
# Differences that say when a run ended, how it rounds, or which callback watched it.
_OF_END_OR_ROUNDING = (
    *("max_epochs ", "patience ", "stopping.min_delta ", "ended by ", "trainer.precision "),
    f"{_OWN_CLASS} ",
)


class PublishedCorpus(NamedTuple):
    """A corpus of published experiments, whose names begin with its key."""

    sha256: str  # lmkit's fingerprint of the files that `lmkit download` fetches
    words: int
    test_tokens: int  # predictions, of one column
    rank_contexts: int  # of the published ranks: they compare at that number alone


CORPORA = {
    "penn": PublishedCorpus(
        "ba5fd78862db146659a36e6c51f41bc5552b797e22e05b71b10fff21ca0b3a40", 10_000, 82_429, 82_429
    ),
    "wt2": PublishedCorpus(
        "ac230c8846ce9edb31523a744c56697595e7aeaf5635abcb7bdb3394b9ea1e81", 33_278, 245_568, 33_320
    ),
}


def published(first: str = "") -> pd.DataFrame:
    """Every published value; what a row lacks is missing.

    Args:
        first: a paper and tables of it, "Yang et al. 2018, table 5 and figure 1": their rows come
            first, and then the paper's others.
    """
    found = pd.read_csv(Path(__file__).with_name("published.csv"))
    is_paper = found["paper"].map(first.startswith)
    tables = [part for title in first.split(", ", 1)[1:] for part in title.split("; ")]
    is_one = {t: any(f"{part} ".startswith(f"{t} ") for part in tables) for t in found["table"]}
    is_table = is_paper & found["table"].map(is_one)
    return found.iloc[(~is_table * 1 + ~is_paper * 1).argsort(kind="stable")]


class Printed(NamedTuple):
    """A published value; NaN of what it lacks."""

    value: float
    spread: float
    remark: str | float
    source: str  # paper and table


def printed(paper: str, experiments: Iterable[str]) -> dict[str, Printed]:
    """What was published of one experiment, under its several names, by quantity.

    Its perplexities are of one table, of `paper` first: others can be of another model.
    """
    found = published(paper)
    found = found[found["experiment"].isin(list(experiments))]
    found = found.assign(source=found["paper"] + ", " + found["table"])
    is_ppl = found["quantity"].isin(PERPLEXITIES)
    is_first = found["source"].isin(found.loc[is_ppl, "source"].head(1))
    of_one = found[~is_ppl | is_first].drop_duplicates("quantity")
    cells = of_one[["value", "spread", "remark", "source"]].itertuples(index=False)
    return {name: Printed(*cell) for name, cell in zip(of_one["quantity"], cells, strict=True)}


def published_curves() -> pd.DataFrame:
    """Trainings by others until they were restarted, without epochs of which only some windows are
    known: `log, epoch, train_ppl, valid_ppl, test_ppl, seconds, note` and of each log `experiment,
    seed, differs, source`.
    """
    curves = pd.read_csv(Path(__file__).with_name("published_curves.csv"))
    logs = pd.read_csv(Path(__file__).with_name("published_curve_logs.csv"))
    is_other = curves["note"].str.contains("restart|windows", na=False)
    return curves[~is_other].merge(logs, on="log")


def corpus_of(run: Mapping[str, Any]) -> str | None:
    """The key of the published corpus on which a run was trained; None of another corpus. A text of
    the same sizes counts, and is a difference.
    """
    columns = int(run.get("windows.test_batch_size") or 1)
    for key, corpus in CORPORA.items():
        tokens = ((corpus.test_tokens + 1) // columns - 1) * columns
        sizes = run.get("words"), run.get("test_tokens")
        if run["data_sha256"] == corpus.sha256 or sizes == (corpus.words, tokens):
            return key
    return None


def nearest(runs: pd.DataFrame, compose: Compose, paper: str = "") -> pd.DataFrame:
    """Of each group on a published corpus, the nearest experiment with the same head.

    Args:
        paper: with its table: its experiments come first.

    Returns: by group `experiment`, `names` (with others of the same configuration), its
        `reported_seed`, `differs` (texts such as
        `optimizer.lr 5 (20)`: ours, and in brackets the published) and `is_alike`, where
        curves compare: they differ at most in when they end, how they round and what watches them.
    """
    experiments = published(paper)["experiment"].dropna().unique()
    found = []
    for group, members in runs.groupby("group", sort=False):
        run = _known(members.iloc[0])
        corpus = corpus_of(run)
        candidates = [
            (experiment, _with_start(runs, members, experiment, compose))
            for experiment in experiments
            if experiment.partition("_")[0] == corpus
            and _name(experiment).endswith(FINETUNE) == ("finetuned" in run)
            and _has_head(run, composed(experiment, compose)["head"])
        ]
        if candidates:
            experiment, differs = min(candidates, key=lambda each: len(each[1]))
            seed = composed(experiment, compose)["seed"]
            is_alike = all(line.startswith(_OF_END_OR_ROUNDING) for line in differs)
            names = [name for name, of in candidates if of == differs]
            found.append((group, experiment, names, seed, differs, is_alike))
    columns = ["group", "experiment", "names", "reported_seed", "differs", "is_alike"]
    return pd.DataFrame(found, columns=columns).astype({"is_alike": bool}).set_index("group")


def differences(members: pd.DataFrame, experiment: str, compose: Compose) -> list[str]:
    """In what the runs of a group differ from an experiment. Seeds, threads and the kind of device
    do not count: they are not what an experiment is.
    """
    run = _known(members.iloc[0])
    config = composed(experiment, compose)
    wanted = flat(identity(config, str(run["data_sha256"]), str(run["device_kind"])).settings)
    rows: list[Row] = [{k: v for k, v in each.items() if is_option(k)} for each in (run, wanted)]
    stated = [set(row) for row in rows]
    add_defaults(rows)
    ours, theirs = map(without_the_trunks_width, rows)
    options = [o for o in dict.fromkeys([*theirs, *ours]) if ours.get(o) != theirs.get(o)]
    texts = [
        f"{_OWN_CLASS} {o.removeprefix(SOURCES)}"
        if o.startswith(SOURCES)
        else f"{o.removesuffix('._target_')} {_text(ours.get(o))} ({_text(theirs.get(o))})"
        for o in options
        if o not in SAME
        and not o.startswith("stopping.")
        and not _is_of_a_class(o, ours, theirs, stated)
    ]
    return [*texts, *_data(run), *_budget(members, config)]


def method_differences(
    run: Mapping[Hashable, Any], column: str, published_options: str
) -> list[str]:
    """In what a method of evaluation differs from that of a published value.

    Args:
        column: of the perplexity, `evaluate_cache_test.ppl`.
        published_options: as `published.csv` remarks them, `window 500, theta 1.0`.
    """
    theirs = dict(each.split(" ", 1) for each in published_options.split(", "))
    stem = column.removesuffix(".ppl")
    ours = {name: run.get(f"{stem}.options.{name}") for name in theirs}
    return [
        f"{name} {_text(ours[name])} ({value})"
        for name, value in theirs.items()
        if ours[name] != yaml.safe_load(value)
    ]


def composed(experiment: str, compose: Compose) -> Mapping[str, Any]:
    """The configuration of an experiment as `published.csv` names it, with its options."""
    name, *changes = experiment.split()
    if not changes:
        return compose(name)
    config = deepcopy(dict(compose(name)))
    for option, _, value in (change.partition("=") for change in changes):
        *path, key = option.split(".")
        section: dict[str, Any] = config
        for part in path:
            section = section[part]
        section[key] = yaml.safe_load(value)
    return config


def _with_start(
    runs: pd.DataFrame, members: pd.DataFrame, experiment: str, compose: Compose
) -> list[str]:
    """The differences; of finetuned runs also those of the runs that they go on from."""
    differs = differences(members, experiment, compose)
    name, changes = _name(experiment), experiment.partition(" ")[2]
    if not name.endswith(FINETUNE):
        return differs
    digests = set(members["finetuned_from.identity"])
    starts = runs[runs.index.str.rpartition("-").get_level_values(2).isin(digests)]
    if len(starts) < len(digests):
        differs.append("runs that it goes on from are not among these")
    before = f"{name.removesuffix(FINETUNE)} {changes}".strip()
    for _, of in starts.groupby("group"):
        differs += [f"before: {each}" for each in differences(of, before, compose)]
    return list(dict.fromkeys(differs))


def _has_head(run: Mapping[str, Any], head: Mapping[str, Any]) -> bool:
    targets = {k: v for k, v in flat({"head": head}).items() if k.endswith(("_target_", ".frozen"))}
    return all(run.get(option) == value for option, value in targets.items())


def _name(experiment: str) -> str:
    """Without the options that it changes."""
    return experiment.partition(" ")[0]


def _is_of_a_class(option: str, ours: Row, theirs: Row, stated: list[set[str]]) -> bool:
    """Whether only one states the option, since the sections are of different classes."""
    target = f"{option.rpartition('.')[0]}._target_"
    of_both = all(option in each for each in stated)
    return not of_both and ours.get(target) != theirs.get(target)


def _data(run: Row) -> list[str]:
    tokens = run.get("data.train_tokens")
    if tokens is not None:
        return [f"data.train_tokens {tokens:,.0f} (all)"]
    known = {corpus.sha256 for corpus in CORPORA.values()}
    return [] if run["data_sha256"] in known else ["another text of the same size"]


def _budget(members: pd.DataFrame, config: Mapping[str, Any]) -> list[str]:
    """The papers train until convergence; so did a run that ended by the same patience."""
    run = _known(members.iloc[0])
    differs = []
    if run.get("patience") != config["patience"]:
        differs.append(f"patience {_text(run.get('patience'))} ({_text(config['patience'])})")
    if "patience" in run and run.get("min_delta"):
        differs.append(f"stopping.min_delta {run['min_delta']:g} (0)")
    if (members["stopped"] == "callback").any():
        differs.append("ended by a callback")
    ran_out = (members["stopped"] == "max_epochs").any()
    ran_longer = members["epochs"].max() > config["max_epochs"]
    if run.get("max_epochs") != config["max_epochs"] and (ran_out or ran_longer):
        most = _text(run.get("max_epochs")), _text(config["max_epochs"])
        differs.append(f"max_epochs {most[0]} ({most[1]})")
    return differs


def _known(run: pd.Series[Any]) -> dict[str, Any]:
    return {str(name): value for name, value in run.dropna().items()}


def _text(value: object) -> str:
    """As it would be typed; of a class only its name."""
    if value is None:
        return "null"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text.rpartition(".")[2] if text.startswith(("lmkit.", "torch.")) else text
