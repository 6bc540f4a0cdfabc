"""How much of the logits' loss gradient passes a run's decoder, and what a step does with it.

Godey and Artzi 2026 (arXiv 2603.10145). The share of the gradient's norm that passes is theirs, and
so is the rank of a step's change, which lmkit measures on log P, so that it is defined for every
head: see `lmkit.measures.gradient_share`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from lmkit import evaluation, experiment, measures, pretrained
from lmkit.analyses.analysis import Analysis, Content, MeasuredRun
from lmkit.analyses.first_contexts import FirstContexts
from lmkit.comparison.cells import spread_cell, unmeasured
from lmkit.comparison.evaluations import GRADIENT, lost_norm
from lmkit.comparison.facts import Study
from lmkit.comparison.groups import spread_of
from lmkit.comparison.run_files import Files
from lmkit.presentation.checkpoint_curves import Panel, Points, checkpoint_curves, has_curves
from lmkit.presentation.section import Section
from lmkit.presentation.side_by_side import side_by_side
from lmkit.presentation.tables import Cell, Column, Table, number, whole, word
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile

_LOGGED = "gradient_bottleneck/"  # prefix of what training logs
_SHARES = {
    "share": "share of all gradients",
    "mean_share": "mean share",
    "low_share": "  5 % are below",
    "high_share": "  5 % are above",
    "isotropic_share": "share of a random direction",
}
_UPDATE = {
    "update_contexts": "contexts per step",
    "update_rank": "rank of log P's change",
    "update_bound": "  at most",
    "update_cosine": "cosine with what is asked",
}

FILE = "gradient_bottleneck.json"
COMMAND = "lmkit gradient_bottleneck run=RUNS"  # which writes it for each run


class GradientBottleneck(Analysis):
    """The share of the gradients' norm that passes, at the best checkpoint and at the last.

    Args:
        split: train, valid or test.
        contexts: how many contexts, from the split's start, at most; None: all.
    """

    name, schema_version, form = GRADIENT
    order = 140
    takes_dialogue = True

    def __init__(self, *, split: str, contexts: int | None) -> None:
        self.first = FirstContexts(split, contexts)

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        windows, count, _ = self.first.of(run)
        checkpoints = []
        for measured in evaluation.each_checkpoint.at_each_checkpoint(run, windows, count):
            checkpoints.append(measured._asdict() | measured.bottleneck._asdict())
            del checkpoints[-1]["bottleneck"]
        return {
            **checkpoints[0],
            "split": self.first.split,
            "checkpoints": checkpoints,
            "epochs": logged_epochs(run.folder),
        }

    def measure_pretrained(
        self, loaded: pretrained.loading.LoadedPretrained, text: str, folder: RunFolder
    ) -> Content:
        windows, count, _ = self.first.among(loaded.windows, text)
        shown = loaded.with_bar(windows, count, "shares")
        measured = measures.gradient_share.model_bottleneck(loaded.model, shown, count)
        return measured._asdict() | {"checkpoints": [measured._asdict()], "epochs": []}

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        cells = {
            f"{name}, {measured['checkpoint']}" if "epoch" in measured else name: _cells(measured)
            for name, content in contents.items()
            for measured in content["checkpoints"]
        }
        rows = list(dict.fromkeys(row for column in cells.values() for row in column))
        columns = {name: list(column.values()) for name, column in cells.items()}
        return side_by_side(self.name, self._title(contents.values()), rows, columns)

    def figures(self, measured: Sequence[MeasuredRun], folder: Path) -> dict[Path, Figure]:
        """The share over training, for pretrained models whose training step is known."""
        curves = [panel(content for _, content in measured)]
        if not has_curves(curves):
            return {}
        drawn = checkpoint_curves(curves, self._title([content for _, content in measured]))
        return {folder / f"training_{self.name}.svg": drawn}

    def _title(self, contents: Iterable[Content]) -> str:
        (split, *_), counts = zip(*((c["split"], c["num_contexts"]) for c in contents), strict=True)
        return f"Loss gradient that reaches the contexts: {self.first.named(split, counts)}"

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        counts = {group: len(group.gradients) for group in study.groups}
        missing = unmeasured(FILE, counts, COMMAND)
        intro = (
            "How much of the loss gradient at the logits reaches the context vectors, and how much "
            "of the change that the loss asks for does a step make?"
        )
        blocks = [_table(study)] if any(counts.values()) else []
        return [Section("gradient", "Gradient bottleneck", intro, blocks, missing)]


def panel(contents: Iterable[Content]) -> Panel:
    """The share over the steps of training, of the pretrained models whose step is known."""
    points = Points()
    for content in contents:
        model = content.get("pretrained")
        if model is not None and model["step"] is not None:
            for share in ("share", "isotropic_share"):
                label = f"{model['family']}, {_SHARES[share]}"
                points.add(label, model["step"], content[share])
    return Panel("share of the gradient's norm", points)


def logged_epochs(run: RunFolder) -> list[dict[str, float]]:
    """What training has logged: the epoch (from 1) and the shares, one row per epoch."""
    epochs = []
    for row in MetricsFile(run.metrics).read_finished():
        shares = {
            name.removeprefix(_LOGGED): value
            for name, value in row.items()
            if name.startswith(_LOGGED)
        }
        if shares:
            epochs.append({"epoch": row["epoch"], **shares})
    return epochs


def _cells(measured: Content) -> dict[str, str]:
    """The cells of one checkpoint, by the names of their rows."""
    of_run = {}
    if "epoch" in measured:
        weights = "averaged" if measured["averaged"] else "raw"
        of_run = {"epoch": str(measured["epoch"]), "weights": weights}
    return of_run | {
        "contexts": whole(measured["num_contexts"]).text,
        "decoder's rank": whole(measured["decoder_rank"]).text,
        "words": f"{measured['num_words']:,}",
        **{name: number(measured[share], 4).text for share, name in _SHARES.items()},
        "norm that is lost": number(lost_norm(measured), 4).text,
        **{_UPDATE[name]: whole(measured[name]).text for name in list(_UPDATE)[:-1]},
        _UPDATE["update_cosine"]: number(measured["update_cosine"], 4).text,
    }


def _table(study: Study) -> Table:
    """Of each group, means over the seeds that were measured over the same contexts."""
    rows = []
    for group in study.groups:
        alike: dict[tuple[str, int], list[Content]] = {}
        for content in group.gradients:
            alike.setdefault((content["split"], content["num_contexts"]), []).append(content)
        for (split, contexts), seeds in sorted(alike.items()):
            sizes = map(whole, (contexts, len(seeds), seeds[0]["decoder_rank"]))
            rows.append([word(group.label), word(split), *sizes, *_spreads(seeds)])
    columns = [
        Column("head", is_text=True),
        Column("split", is_text=True),
        Column("contexts"),
        Column("seeds"),
        Column("decoder's rank"),
        Column("norm lost, %", ("mean", "sd")),
        Column("lost of a context's, mean %", ("mean", "sd")),
        Column("of a random direction, %", ("mean", "sd")),
        Column("rank of log P's change", ("mean", "sd")),
        Column("at most", is_optional=True),
        Column("cosine with what is asked", ("mean", "sd")),
    ]
    caption = (
        "Part of the norm of the loss gradient at the logits that is lost on the way to the "
        "context vectors, as it lies outside the decoder's column space; and the rank of log P's "
        "first-order change by a step of gradient descent, with its cosine with the change that "
        f"the loss asks for, {study.short}: mean ± one standard deviation over the seeds that "
        "were measured."
    )
    return Table("gradient_bottleneck", "Gradient bottleneck", caption, columns, rows)


def _spreads(contents: Sequence[Content]) -> list[Cell]:
    """The cells of a group that follow the sizes."""

    def cell(name: str, digits: int, lost: bool = False) -> Cell:
        values = [content[name] for content in contents if content[name] is not None]
        shown = spread_of([100 * (1 - v) if lost else v for v in values])
        return spread_cell(shown, digits, len(contents))

    shares = [cell(name, 2, lost=True) for name in ("share", "mean_share", "isotropic_share")]
    return [
        *shares,
        cell("update_rank", 0),
        whole(contents[0]["update_bound"]),
        cell("update_cosine", 3),
    ]
