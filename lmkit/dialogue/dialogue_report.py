"""Dialogue runs side by side: scores over seeds with p-values, and what they answer."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from lmkit.comparison.significance import compare, holm
from lmkit.errors.user_error import UserError
from lmkit.presentation.published import published_dialogue

# name in analysis/dialogue.json, title, decimals
MEASURES = (
    ("perplexity", "perplexity", 2),
    *(
        (f"bleu{n}_{kind}", f"BLEU-{n} {kind}", 4)
        for n in range(1, 5)
        for kind in ("precision", "recall")
    ),
    ("distinct1", "distinct-1", 4),
    ("distinct2", "distinct-2", 4),
    ("response_words", "words a response", 2),
)
NOTE = (
    "± is the standard deviation over seeds, (n) their number. p: Student's test against "
    "{baseline}, corrected for the experiments held against it (Holm). BLEU: precision is the "
    "mean, recall the maximum over {n_best} responses, to {pairs:,} of {all_pairs:,} contexts."
)


class ScoredRun(NamedTuple):
    """One run and what was found of it."""

    experiment: str
    seed: int
    head: str  # "softmax", "moc", "mos" or another mixture's class
    corpus: str
    found: Mapping[str, object]  # its analysis/dialogue.json


def scored_run(config: Mapping[str, object], found: Mapping[str, object]) -> ScoredRun:
    """A run by its composed configuration and the content of its analysis/dialogue.json."""
    mixture = config["head"]["mixture"]["_target_"].rpartition(".")[2]
    heads = {"SingleContext": "softmax", "MixtureOfContexts": "moc", "MixtureOfSoftmaxes": "mos"}
    head, corpus = heads.get(mixture, mixture), config["data"]["name"]
    return ScoredRun(config["name"], config["seed"], head, corpus, found)


def dialogue_table(runs: Sequence[ScoredRun], baseline: str | None) -> Table:
    """One column for each experiment, with its p-values, and one for each published head.

    Raises: UserError when there is no experiment called `baseline`.
    """
    groups: dict[str, list[ScoredRun]] = {}
    for run in runs:
        groups.setdefault(run.experiment, []).append(run)
    baseline = _baseline(groups, baseline)
    others = [name for name in groups if name != baseline]
    table = Table(title="responses to contexts")
    table.add_column("", no_wrap=True)
    for name in (baseline, *others):
        table.add_column(f"{name} ({len(groups[name])})", justify="right")
        if name != baseline:
            table.add_column("p", justify="right")
    heads = published_dialogue().heads if _is_switchboard(runs) else {}
    for head in heads:
        table.add_column(f"published {head}", justify="right", style="dim")
    for measure, title, decimals in MEASURES:
        values = {n: [float(r.found[measure]) for r in group] for n, group in groups.items()}
        p_values = _p_values(values, baseline, others)
        cells = [_mean(values[baseline], decimals)]
        for name in others:
            cells += [_mean(values[name], decimals), _number(p_values.get(name), 3)]
        cells += [_number(heads[head].get(measure), 3) for head in heads]
        table.add_row(title, *cells)
    return table


def dialogue_note(runs: Sequence[ScoredRun], baseline: str | None) -> str:
    """What has to be said about the table."""
    groups = {run.experiment: [run] for run in reversed(runs)}
    found = runs[0].found
    note = NOTE.format(
        baseline=_baseline(groups, baseline),
        n_best=found["options"]["n_best"],
        pairs=found["answered_pairs"],
        all_pairs=found["all_pairs"],
    )
    return f"{note} {published_dialogue().note}" if _is_switchboard(runs) else note


def samples(runs: Sequence[ScoredRun], shown: int) -> Iterator[str]:
    """Contexts, references, and the best response of each experiment's first run, as text."""
    first: dict[str, ScoredRun] = {}
    for run in runs:
        first.setdefault(run.experiment, run)
    sides = [(name, run.found["responses"]) for name, run in first.items()]
    width = max(len(name) for name, _ in sides)
    kept = sides[0][1]
    # evenly spaced among what is kept, since what is near is much alike
    for i in range(min(shown, len(kept))):
        chosen = kept[i * len(kept) // min(shown, len(kept))]
        yield "\n" + "\n".join(chosen["context"])
        yield f"  {'(said)':{width}}  {' '.join(chosen['reference'])}"
        for name, responses in sides:
            same = [r for r in responses if r["context"] == chosen["context"]]
            if same:
                yield f"  {name:{width}}  {' '.join(same[0]['responses'][0])}"


def _baseline(groups: Mapping[str, Sequence[ScoredRun]], baseline: str | None) -> str:
    if baseline is None:
        plain = [name for name, group in groups.items() if group[0].head == "softmax"]
        return (plain or list(groups))[0]
    if baseline not in groups:
        raise UserError(f"baseline={baseline} has no run here; there are {', '.join(groups)}")
    return baseline


def _p_values(
    values: Mapping[str, Sequence[float]], baseline: str, others: Sequence[str]
) -> dict[str, float]:
    found = {name: compare(values[name], values[baseline]).p_student for name in others}
    known = {name: p for name, p in found.items() if p is not None}
    return dict(zip(known, holm(list(known.values())), strict=True))


def _is_switchboard(runs: Sequence[ScoredRun]) -> bool:
    return any(run.corpus == "switchboard" for run in runs)


def _mean(values: Sequence[float], decimals: int) -> str:
    mean = f"{statistics.fmean(values):.{decimals}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values):.{decimals}f}"


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:.{decimals}f}"
