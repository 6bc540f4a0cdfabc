"""What was published of a group's head, and how the group differs from it.

A published value stands for its experiment in conf/experiment. A group is the same experiment if
everything that decides its numbers is as in that configuration: only then is the distance between
the two values, in published standard deviations, meaningful.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lmkit.comparison.corpora import CorpusFacts, counted_contexts, counted_words
from lmkit.comparison.groups import Group, Spread
from lmkit.comparison.published import (
    PublishedNumber,
    PublishedRun,
    published_run,
    published_section,
    published_tables,
)
from lmkit.comparison.settings import (
    Difference,
    deciding_settings,
    differences_in_words,
    differing_settings,
)
from lmkit.presentation.tables import joined
from lmkit.runs.finished import FinishedRun
from lmkit.runs.identity import identity, without_defaults
from lmkit.runs.names import FINETUNE

# From an experiment's name in conf/ to its configuration, plain and resolved. Entry points pass it
# down, since only they compose.
Experiments = Callable[[str], Mapping[str, Any]]
SAID = "what all runs here differ in (said at the top)"
Departures = Mapping[str, tuple[Difference, ...]]  # by experiment: how a group differs from it

# experiments whose settings, not their head alone, were published
_NAMED = (
    "mos_dagger",
    "softmax_dagger",
    "softmax_ddagger",
    "awd_lstm_mos_hyperparameters",
    "awd_lstm",
    "doc",
)
# published under the family of their head, but configured under another name
_CONFIGURED = {"mos_lms_plif": "mos_plif"}


class Published(NamedTuple):
    """Facts of the same head with the same kind of averaging on the same corpus."""

    experiment: str  # their name in published.yaml
    facts: PublishedRun
    reported_seed: int  # of the one run that the authors reported; the other ten are random
    differences: tuple[str, ...]  # in which the group differs from the published


def nothing_published(run: str) -> Published | None:
    """The default: nothing published of a run."""
    return None


def corpus_prefix(runs: Iterable[FinishedRun]) -> str | None:
    """ "penn" or "wt2", None for another corpus."""
    return next((prefix for prefix in map(_prefix, runs) if prefix is not None), None)


def published_of(
    group: Group,
    spreads: Mapping[str, Spread],
    corpus: CorpusFacts,
    prefix: str | None,
    experiments: Experiments,
) -> Published | None:
    """None if nothing was published of this head with these settings."""
    trigger = published_section("triggers").get(group.trigger.partition(" ")[0])
    if prefix is None or trigger is None:
        return None
    named = group.runs[0].result.experiment
    if named.removeprefix(f"{prefix}_") in _NAMED:
        experiment = named
    else:
        if not has_published_settings(group, prefix):
            return None
        experiment = f"{prefix}_{group.head.family}{trigger['suffix']}"
    facts = published_run(experiment, published_section("corpora")[prefix]["num_words"])
    if facts is None:
        return None
    config = experiments(_configured(experiment, prefix))
    texts = [each.text for each in _differences(group, corpus, config)]
    remark = [] if facts.remark is None else [facts.remark]
    differences = (*remark, *_parameters(spreads.get("parameters"), facts), *texts)
    return Published(experiment, facts, int(config["seed"]), differences)


def has_published_settings(group: Group, prefix: str | None) -> bool:
    """Whether the options that distinguish published runs of this head are as published."""
    wanted = published_section("settings").get(group.head.family, {})
    wanted = wanted.get(prefix, wanted)
    return all(group.settings.get(option) == value for option, value in wanted.items())


def departures_of(
    group: Group,
    among: Sequence[Group],
    corpus: CorpusFacts,
    prefix: str | None,
    experiments: Experiments,
) -> Departures:
    """How a group differs from each of the experiments beside which tables may show it.

    These are that of its name, where published tables have a row of it, that of its head over (c,
    k), and that of mixtures.

    Args:
        among: all groups, some of which this one may start from.
    """
    if prefix is None:
        return {}
    of_tables = {row.experiment for table in published_tables(prefix) for row in table.rows}
    names = {run.result.experiment for run in group.runs}
    wanted = {
        each for each in names if len(names) == 1 and each.removesuffix(FINETUNE) in of_tables
    }
    if group.head.family == "gss":
        wanted.add(f"{prefix}_gss")
    if group.head.family == "mos" and group.trigger.startswith("NT"):
        wanted.add(f"{prefix}_mos_nt")
    return {
        each: tuple(_from_experiment(group, among, corpus, each, experiments)) for each in wanted
    }


def _from_experiment(
    group: Group,
    among: Sequence[Group],
    corpus: CorpusFacts,
    experiment: str,
    experiments: Experiments,
) -> list[Difference]:
    """Those from an experiment, `NAME` or `NAME_finetune`.

    The runs that a finetuned one begins with are compared with NAME.
    """
    differences = _differences(group, corpus, experiments(experiment))
    if not experiment.endswith(FINETUNE):
        return differences
    starts = {run.settings.get("finetuned_from", {}).get("identity") for run in group.runs}
    before = [g for g in among if any(run.result.identity in starts for run in g.runs)]
    known = {run.result.identity for each in before for run in each.runs}
    if starts - known:
        differences.append(Difference("", "runs that it begins with are not among these"))
    config = experiments(experiment.removesuffix(FINETUNE))
    return differences + [
        line._replace(text=f"before: {line.text}")
        for each in before
        for line in _differences(each, corpus, config)
    ]


def _differences(group: Group, corpus: CorpusFacts, config: Mapping[str, Any]) -> list[Difference]:
    """`lr=5 (20)`: what is so here, and in brackets what a published experiment has.

    Seeds, threads and the kind of device do not count: they are not what an experiment is.
    """
    run = group.runs[0]
    wanted = identity(config, run.data_sha256, str(run.settings["device_kind"])).settings
    options = differing_settings(  # an option at its default may be there or left out
        deciding_settings(without_defaults(each)) for each in (wanted, run.settings)
    )
    mine, theirs = (deciding_settings(each) for each in (run.settings, wanted))
    data, budget = ([Difference("", text) for text in texts]
                    for texts in (_data(corpus), _budget(group, config)))  # fmt: skip
    return [*data, *differences_in_words(options, mine, theirs), *budget]


class Departure(NamedTuple):
    """How a group differs from the published experiment beside which it stands."""

    label: str
    experiment: str
    differences: tuple[str, ...]  # none: it is that experiment


def not_as_published(
    whose: Iterable[tuple[str, Published | None]], said: Collection[str] = ()
) -> list[str]:
    """Notes on groups that are not the experiments of their published values.

    Args:
        whose: labels of groups, and what was published of them.
        said: what all groups differ in, which the page says once.
    """
    return departures_in_words(
        (
            Departure(label, each.experiment, each.differences)
            for label, each in whose
            if each is not None
        ),
        said,
    )


def departures_in_words(departures: Iterable[Departure], said: Collection[str] = ()) -> list[str]:
    """Notes that say once what all differ in, and then what only some do.

    Args:
        said: differences that stand elsewhere, and are not repeated.
    """
    departures = [
        each._replace(differences=(SAID, *(d for d in each.differences if d not in said)))
        if any(line in said for line in each.differences)
        else each
        for each in departures
    ]
    every = [each for each in dict.fromkeys(departures) if each.differences]
    if not every:
        return []
    common = [line for line in every[0].differences if all(line in d.differences for d in every)]
    ours = dict.fromkeys(each.label for each in every)
    theirs = dict.fromkeys(each.experiment for each in every)
    are = "is" if len(ours) == 1 else "are"
    note = f"{joined(ours)} {are} not {joined(theirs)} as published"
    note += ", so the figures do not compare"
    notes = [f"{note}: {'; '.join(common)}" if common else note]
    of_some: dict[tuple[str, ...], list[str]] = {}
    for each in every:
        rest = tuple(line for line in each.differences if line not in common)
        of_some.setdefault(rest, []).append(each.label)
    also = " also" if common else ""
    notes += [
        f"{joined(dict.fromkeys(labels))}{also}: {'; '.join(rest)}"
        for rest, labels in of_some.items()
        if rest
    ]
    return notes


def deviation(mine: Spread | None, fact: PublishedNumber | None) -> float | None:
    """By how many published standard deviations the mean exceeds the published one. Meaningful only
    for the same experiment.
    """
    if mine is None or fact is None or not fact.std:
        return None
    return (mine.mean - fact.value) / fact.std


def _configured(experiment: str, prefix: str) -> str:
    """The name of its file in conf/experiment."""
    name = experiment.removeprefix(f"{prefix}_")
    return f"{prefix}_{_CONFIGURED.get(name, name)}"


def _prefix(run: FinishedRun) -> str | None:
    """The run's published corpus, whatever number of columns its test split has."""
    columns = run.settings["windows"].get("test_batch_size", 1)
    for prefix, corpus in published_section("corpora").items():
        contexts = ((corpus["test_contexts"] + 1) // columns - 1) * columns
        sizes = (corpus["num_words"], contexts)
        if run.data_sha256 == corpus["sha256"] or sizes == (
            counted_words(run),
            counted_contexts(run),
        ):
            return str(prefix)
    return None


def parameters_in_print(parameters_m: float | None, printed: float | None) -> list[str]:
    """The difference from a printed number of millions, to as many digits; a print may cut off."""
    if parameters_m is None or printed is None:
        return []
    digits = len(f"{printed}".partition(".")[2])
    cut = int(parameters_m * 10**digits) / 10**digits
    if printed in (round(parameters_m, digits), cut):
        return []
    return [f"{parameters_m:.{max(digits, 1)}f}M parameters ({printed}M)"]


def _parameters(parameters: Spread | None, facts: PublishedRun) -> list[str]:
    if parameters is None or facts.params_m is None:
        return []
    millions = int(parameters.mean / 1e4) / 100
    if millions == facts.params_m.value:
        return []
    return [f"{millions:.2f}M parameters ({facts.params_m.value:.2f}M)"]


def _data(corpus: CorpusFacts) -> list[str]:
    if corpus.train_tokens is not None:
        return [f"first {corpus.train_tokens:,} tokens of the training text (all)"]
    published = {each["sha256"] for each in published_section("corpora").values()}
    return [] if corpus.sha256 in published else ["another text of the same size"]


def _budget(group: Group, config: Mapping[str, Any]) -> list[str]:
    """The papers train until convergence; so did a run that ended by the same patience."""
    first, *_ = spent = [run.result.budget for run in group.runs]
    differences = []
    if first.patience != config["patience"]:
        differences.append(f"patience={_null(first.patience)} ({_null(config['patience'])})")
    if first.patience is not None and first.min_delta:
        differences.append(f"stopping.min_delta={first.min_delta:g} (0)")
    ran_out = any(each.stopped == "max_epochs" for each in spent)
    ran_longer = max(each.epochs for each in spent) > config["max_epochs"]
    if first.max_epochs != config["max_epochs"] and (ran_out or ran_longer):
        most = _null(first.max_epochs), _null(config["max_epochs"])
        differences.append(f"max_epochs={most[0]} ({most[1]})")
    return differences


def _null(limit: int | None) -> str:
    """As it would be typed."""
    return "null" if limit is None else str(limit)
