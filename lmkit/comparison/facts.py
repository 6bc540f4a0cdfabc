"""Facts about groups of runs, computed once: one row per group of a corpus.

Tables are columns over these rows; figures, sentences and commands read them too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from lmkit.comparison.corpora import (
    CorpusFacts,
    corpora,
    disagreements,
    file_key,
    larger_first,
    most_frequent,
)
from lmkit.comparison.evaluations import Evaluated, evaluations, gradients
from lmkit.comparison.groups import (
    Group,
    Spread,
    comparable,
    group_runs,
    spread_of,
)
from lmkit.comparison.published import published_families, published_section
from lmkit.comparison.published_runs import (
    Departures,
    Experiments,
    Published,
    corpus_prefix,
    departures_of,
    not_as_published,
    published_of,
)
from lmkit.comparison.run_files import Files, Measurement
from lmkit.comparison.settings import differing_settings
from lmkit.comparison.significance import (
    Comparison,
    PairedComparison,
    compare,
    compare_paired,
    holm,
)
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.presentation.tables import counted
from lmkit.runs.analysis_files import Content
from lmkit.runs.finished import FinishedRun, LeftOut

NUM_RANDOM_SEEDS = 10  # of the papers' tests, without the seed of the reported run
EPSILONS = {"0.001": "1e−3", "0.0001": "1e−4", "1e-05": "1e−5"}  # of effective ranks, as shown
PRESS = ("press_rank",)


class Against(NamedTuple):
    """Test perplexities of two groups."""

    baseline: Facts
    unpaired: Comparison  # over all seeds
    paired: PairedComparison | None  # over the seeds that both have
    ten_seeds: Comparison | None  # over ten seeds each, as published; None if either lacks these
    more_than_the_head: tuple[str, ...]  # options other than the head's in which they differ
    p_holm: float | None = None  # Student's, corrected for the number of groups of the corpus


@dataclass(frozen=True, eq=False)
class Facts(Group):
    """A group and all facts about it."""

    spreads: Mapping[str, Spread]  # over the runs: metrics, costs, epochs, generalisation_gap
    measured: Mapping[int, Mapping[FinishedRun, Measurement]]  # on test, by number of contexts
    evaluations: tuple[Evaluated, ...]  # of the best weights, by other methods than as trained
    gradients: tuple[Content, ...]  # what `lmkit gradient_bottleneck` stored of the runs
    published: Published | None  # of its head, trained so
    departures: Departures  # by the experiments that it may stand beside
    has_failed: bool  # the runs' training
    against: Against | None = None  # the baseline; None of the baseline itself

    def spread(self, name: str) -> Spread | None:
        """None where no run has it."""
        return self.spreads.get(name)

    def mean(self, name: str) -> float | None:
        """None where no run has it."""
        spread = self.spreads.get(name)
        return None if spread is None else spread.mean

    @property
    def parameters_m(self) -> float | None:
        """Trained parameters in millions."""
        parameters = self.mean("parameters")
        return None if parameters is None else parameters / 1e6

    def ranks(
        self, contexts: int | None, measure: Sequence[str] = PRESS
    ) -> dict[FinishedRun, float]:
        """A measure of log P over so many test contexts, of each run that has it resolved.

        Args:
            measure: its key in the stored measures, and the key below.
        """
        found = {}
        for run, measured in self.measured.get(contexts or 0, {}).items():
            value: object = measured.spectrum
            for key in measure:
                value = value.get(key) if isinstance(value, Mapping) else None
            if isinstance(value, int | float):
                found[run] = value
        return found

    def rank(self, contexts: int | None, measure: Sequence[str] = PRESS) -> Spread | None:
        """Mean and deviation of that measure."""
        return spread_of(list(self.ranks(contexts, measure).values()))

    def ten_seeds(self) -> list[float] | None:
        """Test perplexities without the run of the published seed; None unless ten are left.

        The papers' tests are over ten seeds drawn at random, without the eleventh, that of the run
        which the head's authors had reported (Parthiban et al. 2021, table 2).
        """
        if self.published is None:
            return None
        reported = self.published.reported_seed
        values = [v for seed, v in self.by_seed("test_ppl").items() if seed != reported]
        return values if len(values) == NUM_RANDOM_SEEDS else None


@dataclass(frozen=True, eq=False)
class Study:
    """The groups of one corpus."""

    corpus: CorpusFacts
    key: str  # begins the names of files
    groups: tuple[
        Facts, ...
    ]  # the baseline's, of several seeds, of one, failed: in the papers' order
    baseline_family: str
    prefix: str | None  # of published experiments: "penn" or "wt2", None of another corpus
    disagreements: tuple[str, ...] = ()  # runs that counted other words or contexts than most

    @property
    def title(self) -> str:
        return self.corpus.title

    @property
    def short(self) -> str:
        """The corpus in captions."""
        return self.corpus.short

    @property
    def origin(self) -> str:
        """What contexts are of: the corpus, or the run whose trunk gives them."""
        return self.short.removeprefix("contexts of ")

    @property
    def runs(self) -> list[FinishedRun]:
        return [run for group in self.groups for run in group.runs]

    @property
    def baselines(self) -> list[Facts]:
        return _baselines(self.groups, self.baseline_family)

    @property
    def failed(self) -> list[Facts]:
        """The groups of runs whose training failed, the last ones of all tables."""
        return [group for group in self.groups if group.has_failed]

    @property
    def said(self) -> tuple[str, ...]:
        """What all groups differ in from the published experiments of their heads."""
        known = [g.published.differences for g in self.groups if g.published is not None]
        if len(known) < 2:
            return ()
        return tuple(line for line in known[0] if all(line in each for each in known))

    def not_as_published(self, groups: Iterable[Facts]) -> list[str]:
        """Notes on those that are not what was published of their heads."""
        return not_as_published(((g.label, g.published) for g in groups), self.said)

    def rest_from(self, groups: Sequence[Facts]) -> int | None:
        """The index from which on all of the groups are of a single run; None: all are."""
        several = [i for i, g in enumerate(groups) if len(g.runs) > 1 and not g.has_failed]
        return several[-1] + 1 if several else None

    @property
    def contexts(self) -> int | None:
        """The number of test contexts at which most groups have ranks; of equals the larger."""
        return most_frequent(n for group in self.groups for n in group.measured if group.ranks(n))

    @property
    def published_contexts(self) -> int | None:
        """The number of test contexts of the corpus's published ranks; None: there are none."""
        if self.prefix is None:
            return None
        return int(published_section("corpora")[self.prefix]["rank_contexts"])

    def shown(self, limit: int, among: Sequence[Facts] | None = None) -> tuple[list[Facts], str]:
        """At most `limit` groups for a figure, and a note on which they are.

        They are one per head, or more where there are fewer than three heads. Of one head, the
        group with the most seeds comes first; among equals, that with the lowest valid perplexity.
        If each has a different head, its label is just the head's name, and the note says more.

        Args:
            among: the groups that can be shown; None: all. Those whose training failed never are.
        """
        groups = self.groups if among is None else among
        groups = [group for group in groups if not group.has_failed]
        by_merit = sorted(groups, key=lambda g: (-len(g.runs), min(g.values("valid_ppl"))))
        firsts = list({group.head: group for group in reversed(by_merit)}.values())
        firsts.sort(key=self.groups.index)
        rest = [group for group in by_merit if group not in firsts] if len(firsts) < 3 else []
        chosen = sorted([*firsts, *rest][:limit], key=self.groups.index)
        num_left = len(groups) - len(chosen)
        are = "is" if num_left == 1 else "are"
        further = counted(num_left, "further group")
        note = f" {further} {are} not among them." if num_left else ""
        if rest:
            return chosen, note
        longer = [group.label for group in chosen if group.label != group.head.name]
        details = f" Shown: {', '.join(longer)}." if longer else ""
        return [replace(group, label=group.head.name) for group in chosen], details + note


def studies(
    runs: Sequence[FinishedRun], baseline: str, experiments: Experiments, files: Files
) -> tuple[list[Study], list[LeftOut]]:
    """Groups the runs of each corpus, first of that with the most groups of several seeds.

    Runs that diverged or repeat a seed are left out.

    Args:
        baseline: family of the head that others are compared with.
        experiments: composes a published experiment; called here alone.
        files: reads what the runs hold.

    Raises: UserError when no run has perplexities, or the baseline is the head of no run here and
        of none that was published.
    """
    compared, left_out = comparable(runs)
    if not compared:
        raise UserError("no run can be compared: " + "; ".join(map(": ".join, left_out[:3])))
    by_data: dict[str, list[FinishedRun]] = {}
    for run in compared:
        by_data.setdefault(run.data_sha256, []).append(run)
    of_corpora, keys = [], set[str]()
    for corpus in sorted(corpora(by_data.values()), key=larger_first):
        same = by_data[corpus.sha256]
        together, repeated = group_runs(same, baseline)
        left_out += repeated
        failed = _failed(same)
        key = file_key(corpus, keys)
        keys.add(key)
        prefix = corpus_prefix(same)
        facts = [
            _facts(group, together, corpus, prefix, experiments, files, has_failed=has_failed)
            for has_failed, groups in enumerate(_failed_apart(together, failed))
            for group in sorted(
                groups, key=lambda g: g.head.family != baseline and len(g.runs) == 1
            )
        ]
        facts = _with_baselines(facts, baseline)
        told = tuple(disagreements(corpus, same))
        of_corpora.append(Study(corpus, key, tuple(facts), baseline, prefix, told))
    families = {group.head.family for study in of_corpora for group in study.groups}
    if baseline not in families | published_families():
        raise UserError(
            f"baseline={baseline} is the head of no run{did_you_mean(baseline, sorted(families))}; "
            f"there are {', '.join(sorted(families))}"
        )
    of_corpora.sort(key=lambda study: -sum(len(group.runs) > 1 for group in study.groups))
    return of_corpora, left_out


def published_of_runs(
    runs: Iterable[FinishedRun], experiments: Experiments
) -> Callable[[str], Published | None]:
    """Looks up what was published of a run, by its name; each run is compared by itself."""
    by_name = {run.name: run for run in runs}

    def look_up(name: str) -> Published | None:
        run = by_name[name]
        if comparable([run])[1]:
            return None
        (study,), _ = studies([run], run.names.family, experiments, Files())
        return study.groups[0].published

    return look_up


def _failed(runs: Iterable[FinishedRun]) -> set[str]:
    """The names of the runs whose training failed: with more than twice the median test perplexity
    of the runs whose decoders have the same rank, if it is limited.
    """
    by_rank: dict[object, dict[str, float]] = {}
    for run in runs:
        ppl, rank = run.metric("test_ppl"), run.settings["head"].get("decoder_rank")
        if ppl is not None:
            by_rank.setdefault(rank, {})[run.name] = ppl
    return {
        name
        for known in by_rank.values()
        for name, ppl in known.items()
        if ppl > 2 * statistics.median(known.values())
    }


def _failed_apart(
    groups: Sequence[Group], failed: Container[str]
) -> tuple[list[Group], list[Group]]:
    """The groups without the runs that failed, and these runs in separate groups."""
    found: tuple[list[Group], list[Group]] = ([], [])
    for group in groups:
        for has_failed, label in enumerate((group.label, f"{group.label}, failed")):
            runs = [run for run in group.runs if (run.name in failed) == has_failed]
            if runs:
                found[has_failed].append(replace(group, label=label, runs=tuple(runs)))
    return found


def _facts(
    group: Group,
    among: Sequence[Group],
    corpus: CorpusFacts,
    prefix: str | None,
    experiments: Experiments,
    files: Files,
    *,
    has_failed: int,
) -> Facts:
    """All facts that need no baseline."""
    spreads = _spreads(group)
    return Facts(
        **{each.name: getattr(group, each.name) for each in fields(Group)},
        spreads=spreads,
        measured=_measured(group, files),
        evaluations=tuple(evaluations(group, files)),
        gradients=tuple(gradients(group, files)),
        published=published_of(group, spreads, corpus, prefix, experiments),
        departures=departures_of(group, among, corpus, prefix, experiments),
        has_failed=bool(has_failed),
    )


def _spreads(group: Group) -> dict[str, Spread]:
    """Spreads of everything in the results, by its name there."""
    values: dict[str, list[float]] = {}
    for run in group.runs:
        of_run: dict[str, float | None] = {name: run.metric(name) for name in run.result.metrics}
        of_run |= {name: run.cost(name) for name in run.result.cost}
        of_run["epochs"] = float(run.result.budget.epochs)
        test, train = of_run.get("test_ppl"), of_run.get("train_ppl")
        if test is not None and train is not None:
            of_run["generalisation_gap"] = test - train
        for name, value in of_run.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    spreads = ((name, spread_of(each)) for name, each in values.items())
    return {name: spread for name, spread in spreads if spread is not None}


def _measured(group: Group, files: Files) -> dict[int, dict[FinishedRun, Measurement]]:
    found: dict[int, dict[FinishedRun, Measurement]] = {}
    for run in group.runs:
        for each in files.measurements(run):
            if each.split == "test":
                found.setdefault(each.num_contexts, {})[run] = each
    return found


def _with_baselines(groups: Sequence[Facts], family: str) -> list[Facts]:
    """Every group compared with the baseline that differs least; p corrected for their number."""
    baselines = _baselines(groups, family)
    if not baselines:
        return list(groups)
    compared = {
        group: against(group, _nearest(group, baselines))
        for group in groups
        if group not in baselines and not group.has_failed
    }
    known = {g: p for g, each in compared.items() if (p := each.unpaired.p_student) is not None}
    corrected = dict(zip(known, holm(list(known.values())), strict=True))
    return [
        replace(group, against=compared[group]._replace(p_holm=corrected.get(group)))
        if group in compared
        else group
        for group in groups
    ]


def _baselines(groups: Iterable[Facts], family: str) -> list[Facts]:
    return [group for group in groups if group.head.family == family and not group.has_failed]


def _nearest(group: Facts, baselines: Sequence[Facts]) -> Facts:
    """The baseline closest to the group in settings; among equals, the largest."""

    def distance(other: Facts) -> tuple[int, int]:
        return len(more_than_the_head(group, other)), -len(other.runs)

    return min(baselines, key=distance)


def against(a: Facts, b: Facts) -> Against:
    """Two groups compared; b stands as the baseline."""
    of_a, of_b = a.ten_seeds(), b.ten_seeds()
    return Against(
        b,
        compare(a.values("test_ppl"), b.values("test_ppl")),
        compare_paired(a.by_seed("test_ppl"), b.by_seed("test_ppl")),
        None if of_a is None or of_b is None else compare(of_a, of_b),
        more_than_the_head(a, b),
    )


def more_than_the_head(a: Group, b: Group) -> tuple[str, ...]:
    """The options other than the head's in which two groups differ."""
    options = differing_settings([a.settings, b.settings])
    return tuple(option for option in options if not option.startswith("head."))
