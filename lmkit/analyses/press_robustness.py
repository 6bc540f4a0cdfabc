"""How reliable Press's rank of a run's log P is: a known rank under rounding and noise.

Parthiban et al. 2021, supplement, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lmkit import experiment, measures
from lmkit.analyses.analysis import Analysis, Content, MeasuredRun
from lmkit.analyses.first_contexts import FirstContexts
from lmkit.analyses.one_per_head import one_per_head
from lmkit.comparison.facts import Study
from lmkit.comparison.published import PublishedRobustness, published_robustness
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import require_choice, require_count, require_list, require_positive
from lmkit.presentation.progress import progress_bar
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import MARKERS, SERIES, figure, legend_below
from lmkit.presentation.tables import Cell, Column, Table, number, whole, word
from lmkit.runs.analysis_files import text_of

_EPSILONS = {"0.001": "1e−3", "1e-05": "1e−5"}  # of the report
_MEASURED, _PUBLISHED, _EFFECTIVE = SERIES[:3]  # colours
_PREDICTED = "#000000"


@dataclass(frozen=True)
class _Noisy:
    c: float
    press_rank: int | None
    predicted_rank: float | None = None
    effective_rank: dict[str, int | None] = field(default_factory=dict)


class _Stored(NamedTuple):
    num_contexts: int | None = None
    num_words: int | None = None
    true_rank: int | None = None
    noise: list[_Noisy] | None = None


class PressRobustness(Analysis):
    """Press's rank of log P reduced to rank ten, after round trips and with noise.

    Args:
        split: train, valid or test.
        contexts: how many contexts, from the split's start, at most and more than ten; None: all.
        factorisation: svd, as published, or qr.
        round_trips: how often the matrix is factorised and multiplied back.
        noise: c of the noises' variance c / words^2.
        seed: of the noise.
        checkpoint: best or last.
    """

    name, form = "press_robustness", _Stored
    order = 130
    takes_dialogue = True

    def __init__(
        self,
        *,
        split: str,
        contexts: int | None,
        factorisation: str,
        round_trips: int,
        noise: Sequence[float],
        seed: int,
        checkpoint: str,
    ) -> None:
        require_choice("factorisation", factorisation, ("svd", "qr"))
        require_choice("checkpoint", checkpoint, ("best", "last"))
        require_count("round_trips", round_trips, 0)
        require_count("seed", seed, 0)
        require_list("noise", noise)
        for c in noise:
            require_positive("noise", c)
        self.first = FirstContexts(split, contexts, least=11)
        self.factorisation, self.round_trips = factorisation, round_trips
        self.noise, self.seed = list(noise), seed
        self.checkpoint = checkpoint

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        windows, count, _ = self.first.of(run)
        options = measures.rank_robustness.RobustnessOptions(
            self.factorisation, self.round_trips, self.noise, self.seed
        )
        num_steps = measures.rank_robustness.num_steps(options)
        with _steps(run.folder.path.name, num_steps) as step:
            measured = measures.rank_robustness.study(run.model, windows, count, options, step)
        content = {"split": self.first.split, "contexts": count, **options._asdict()}
        content |= measured._asdict() | {"noise": [noisy._asdict() for noisy in measured.noise]}
        published = _comparable(content)
        return content | {"published": published and published._asdict()}

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        return [
            table
            for name, content in contents.items()
            for table in (_round_trips_table(name, content), _noise_table(name, content))
        ]

    def notes(self, contents: Mapping[str, Content]) -> list[str]:
        if not any(map(_comparable, contents.values())):
            return []
        source = published_robustness().source
        return [f"published: {source}; on noise it is about any log P of this size"]

    def figures(self, measured: Sequence[MeasuredRun], folder: Path) -> dict[Path, Figure]:
        return {
            run.analysis / f"{self.name}{text_of(content).suffix}.svg": _figure(
                run.path.name, content
            )
            for run, content in measured
        }

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        noisy, note = _noisy(study, files)
        blocks: list[Block] = []
        missing = []
        if noisy:
            blocks = [_report_table(study, noisy, note), _report_drawing(study, noisy, note)]
        else:
            missing.append("no press_robustness.json: lmkit press_robustness run=RUNS")
        missing += _beyond(noisy)
        intro = "What is Press's rank of a matrix of known rank, rounded and perturbed?"
        return [Section("robustness", "Robustness of the rank", intro, blocks, missing)]


@contextmanager
def _steps(run: str, count: int) -> Iterator[Callable[[str], None]]:
    """A bar over steps; yields a function that takes the name of each step as it begins."""
    with progress_bar() as progress:
        task = progress.add_task(run, total=count)
        done = iter(range(count))
        yield lambda name: progress.update(task, completed=next(done), description=f"{run}: {name}")


def _comparable(content: Content) -> PublishedRobustness | None:
    """The published study, if its matrix had the same size: otherwise its ranks do not compare."""
    published = published_robustness()
    size = published.num_contexts, published.num_words
    is_as_large = (content.get("num_contexts"), content.get("num_words")) == size
    return published if is_as_large and text_of(content).is_own else None


def _round_trips_table(name: str, content: Content) -> Table:
    errors = ["", *(f"{error:.2e}" for error in content["round_trip_errors"])]
    rows = [
        [whole(trip), whole(rank), word(error)]
        for trip, (rank, error) in enumerate(zip(content["round_trip_ranks"], errors, strict=True))
    ]
    columns = list(map(Column, ("round trip", "Press rank", "relative error")))
    return Table("round_trips", f"{name}: factorised and multiplied back", "", columns, rows)


def _noise_table(name: str, content: Content) -> Table:
    """One row per noise, and one of the published effective ranks."""
    published = _comparable(content)
    epsilons = list(content["noise"][0]["effective_rank"])
    rows = []
    for noisy in content["noise"]:
        ranks = noisy["effective_rank"].values()
        theirs = published.press_rank.get(noisy["c"]) if published else None
        more = word(f"more than {content['true_rank']}")
        rows.append(
            [
                word(f"{noisy['c']:g}"),
                whole(noisy["press_rank"]),
                number(noisy["predicted_rank"], 0),
                whole(theirs),
                *(more if rank is None else whole(rank) for rank in ranks),
            ]
        )
    if published:
        ranks = [whole(published.effective_rank[epsilon]) for epsilon in epsilons]
        rows.append([word("published"), *map(word, ("", "", "")), *ranks])
    columns = [
        *map(Column, ("c", "Press rank", "predicted")),
        Column("published", is_optional=True),
        *(Column(f"ε = {epsilon}") for epsilon in epsilons),
    ]
    size = f"{content['num_words']:,}²"
    title = f"{name}: Gaussian noise of variance c / {size}; by ε the effective ranks"
    return Table("noise", title, "", columns, rows)


def _figure(name: str, content: Content) -> Figure:
    """Rank and error over the round trips; ranks over the noise: measured, predicted, published."""
    drawn = Figure(figsize=(11, 4.8), layout="constrained")
    if content["round_trip_errors"]:
        trips, noise = drawn.subplots(1, 2, width_ratios=(2, 3))
        _draw_round_trips(trips, content)
    else:
        noise = drawn.subplots()
    _draw_noise(noise, content)
    drawn.suptitle(
        f"log P of the first {content['num_contexts']:,} {content['split']} contexts x "
        f"{content['num_words']:,} words, rank reduced to {content['true_rank']}: {name}",
        fontsize="medium",
    )
    return drawn


def _draw_round_trips(axes: Axes, content: Content) -> None:
    trip_errors, ranks = content["round_trip_errors"], content["round_trip_ranks"]
    published = _comparable(content)
    if published:
        axes.axhline(published.round_trips_rank, color=_PUBLISHED, linestyle="--", linewidth=1)
        axes.text(0, published.round_trips_rank * 1.03, "published", color=_PUBLISHED)
    errors = axes.twinx()
    x = range(1, len(trip_errors) + 1)
    (right,) = errors.plot(
        x, trip_errors, color=_EFFECTIVE, marker="s", markersize=4, label="error"
    )
    (left,) = axes.plot(range(len(ranks)), ranks, color=_MEASURED, marker="o", label="Press rank")
    axes.set(
        xlabel=f"round trips ({content['factorisation'].upper()} and back)",
        ylabel="Press rank",
        ylim=(0, max(2 * content["true_rank"], 1.1 * max(ranks))),
    )
    errors.set(ylabel="relative error of the trip (Frobenius norm)", yscale="log")
    errors.set_ylim(min(trip_errors) / 3, max(trip_errors) * 1000)  # below the ranks
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("(a) rounding", loc="left", fontsize="medium")
    axes.legend(handles=[left, right], loc="upper left", fontsize="small")
    axes.grid(alpha=0.3)


def _draw_noise(axes: Axes, content: Content) -> None:
    _draw_predicted(axes, content)
    noise = content["noise"]
    cs = [noisy["c"] for noisy in noise]
    ranks = [noisy["press_rank"] for noisy in noise]
    axes.plot(cs, ranks, "o", color=_MEASURED, markersize=8, label="Press rank, measured")
    published = _comparable(content)
    if published:
        theirs = published.press_rank
        axes.plot(
            list(theirs), list(theirs.values()), "+", color=_PUBLISHED, markersize=14,
            markeredgewidth=2, label="Press rank, published",
        )  # fmt: skip
    for epsilon, marker in zip(noise[0]["effective_rank"], "v^s", strict=True):
        effective = [noisy["effective_rank"][epsilon] or np.nan for noisy in noise]
        axes.plot(
            cs, effective, marker, color=_EFFECTIVE, fillstyle="none",
            label=f"{epsilon}-effective rank, measured",
        )  # fmt: skip
    axes.axhline(content["true_rank"], color="0.6", linestyle=":", label="true rank")
    axes.set(
        xlabel="c (variance of an entry of the noise is c / words²)",
        ylabel="rank",
        xscale="log",
        yscale="log",
    )
    axes.set_title("(b) noise", loc="left", fontsize="medium")
    axes.legend(fontsize="x-small", loc="center right")
    axes.grid(alpha=0.3)


def _draw_predicted(axes: Axes, content: Content) -> None:
    cs = [noisy["c"] for noisy in content["noise"]]
    size = content["num_contexts"], content["num_words"]
    x = np.geomspace(min(cs) / 3, max(cs) * 3, 200).tolist()
    predicted = measures.rank_robustness.predicted_press_rank
    y = [predicted(*size, c, content["tolerance"]) for c in x]
    label = "Press rank by random-matrix theory"
    axes.plot(x, y, color=_PREDICTED, linewidth=1, label=label)


def _noisy(study: Study, files: Files) -> tuple[dict[str, Content], str]:
    """What is stored of one run per group shown, by label, and a note on which run."""
    contents, note, _ = one_per_head(study, files, PressRobustness)
    return {label: each for label, each in contents.items() if each.get("noise")}, note


def _report_table(study: Study, noisy: Mapping[str, Content], note: str) -> Table:
    rows = []
    for label, content in noisy.items():
        published = _comparable(content)
        for each in content["noise"]:
            ranks = each.get("effective_rank") or {}
            theirs = published.press_rank.get(each["c"]) if published else None
            rows.append(
                [
                    word(label),
                    _noise_cell(each["c"]),
                    whole(content.get("true_rank")),
                    whole(each.get("press_rank")),
                    number(each.get("predicted_rank"), 0),
                    whole(theirs),
                    *(whole(ranks.get(epsilon)) for epsilon in _EPSILONS),
                ]
            )
    columns = [
        Column("head", is_text=True),
        *map(Column, ("noise c", "true rank", "Press rank", "predicted")),
        Column("published", is_optional=True),
        *(Column(f"{epsilon}-effective rank") for epsilon in _EPSILONS.values()),
    ]
    first, last = published_robustness().widest_noise
    caption = (
        f"Rank of log P reduced to a known rank, with Gaussian noise of variance c / n², "
        f"{study.short}, one run per head. Predicted: by random-matrix theory. Published: "
        f"{published_robustness().source}, where the matrix has the same size; of its table 15 "
        f"(c from {first:g} to {last:g}) no ranks are known here, and beside other c than these "
        f"the prediction stands alone.{note}"
    )
    return Table("press_robustness", "Press rank under noise", caption, columns, rows)


def _beyond(noisy: Mapping[str, Content]) -> list[str]:
    """The ends of the published range of noise that no run covers, and how to add them."""
    measured = {each["c"] for content in noisy.values() for each in content["noise"]}
    wanted = [c for c in published_robustness().widest_noise if c not in measured]
    if not noisy or not wanted:
        return []
    values = ",".join(f"{c:g}" for c in wanted)
    return [
        f"no noise of c = {values.replace(',', ' and ')}, up to which the supplement's table 15 "
        f"goes: lmkit press_robustness run=RUNS 'noise=[{values}]'"
    ]


def _noise_cell(c: float) -> Cell:
    cell = number(c)
    return cell if c >= 0.01 else cell._replace(text=f"{c:.0e}".replace("-", "−"))


def _report_drawing(study: Study, noisy: Mapping[str, Content], note: str) -> Drawing:
    drawn, axes = figure()
    for i, (label, content) in enumerate(noisy.items()):
        noise = sorted(content["noise"], key=lambda each: each["c"])
        x, y = [each["c"] for each in noise], [each["press_rank"] for each in noise]
        axes.plot(x, y, marker=MARKERS[i], color=SERIES[i], label=label)
    axes.set(xlabel="noise c (variance c / n²)", ylabel="Press rank", xscale="log", ylim=(0, None))
    legend_below(axes)
    caption = f"Press rank of a matrix of known low rank under growing noise, {study.short}.{note}"
    return Drawing("rank_under_noise", "Press rank under noise", caption, drawn)
