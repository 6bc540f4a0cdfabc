"""Which share of the loss gradient at the logits passes a run's decoder, to its context vectors.

Godey and Artzi 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

from lmkit import evaluation
from lmkit.analyses.analysis import Analysis, Content
from lmkit.analyses.first_contexts import FirstContexts
from lmkit.comparison.cells import listed, spread_cell
from lmkit.comparison.groups import Study, spread_of
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Section
from lmkit.presentation.side_by_side import side_by_side
from lmkit.presentation.tables import Column, Table, number, whole, word
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile

_LOGGED = "gradient_bottleneck/"  # begins the names of what training logs
_SHARES = {
    "share": "share of all gradients",
    "mean_share": "mean share",
    "low_share": "  5 % are below",
    "high_share": "  5 % are above",
    "isotropic_share": "share of a random direction",
}
_IN_REPORT = ("share", "mean_share", "isotropic_share")


class GradientBottleneck(Analysis):
    """The share of the gradients' norm that passes, at the best checkpoint and at the last.

    Args:
        split: train, valid or test.
        contexts: first contexts of the split; None: all of them.
    """

    name = "gradient_bottleneck"
    order = 140
    takes_dialogue = True

    def __init__(self, *, split: str, contexts: int | None) -> None:
        self.first = FirstContexts(split, contexts)

    def measure(self, run: evaluation.load.LoadedRun) -> Content:
        windows, count, _ = self.first.of(run)
        checkpoints = []
        for measured in evaluation.gradient_bottleneck.at_each_checkpoint(run, windows, count):
            checkpoints.append(measured._asdict() | measured.bottleneck._asdict())
            del checkpoints[-1]["bottleneck"]
        return {
            **checkpoints[0],
            "split": self.first.split,
            "checkpoints": checkpoints,
            "epochs": logged_epochs(run.folder),
        }

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        columns = {
            f"{name}, {measured['checkpoint']}": _column(measured)
            for name, content in contents.items()
            for measured in content["checkpoints"]
        }
        rows = ["epoch", "weights", "decoder's rank", "words", *_SHARES.values()]
        title = f"Loss gradient that reaches the contexts: {self.first}"
        return side_by_side(self.name, title, rows, columns)

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        table, without = _table(study, files)
        missing = []
        if without:
            how = "lmkit gradient_bottleneck run=RUNS"
            missing.append(f"no gradient_bottleneck.json: {listed(without)}: {how}")
        intro = "How much of the loss gradient at the logits reaches the context vectors?"
        blocks = [table] if table else []
        return [Section("gradient", "Gradient bottleneck", intro, blocks, missing)]


def logged_epochs(run: RunFolder) -> list[dict[str, float]]:
    """What training has logged of it: the epoch (from 1) and the shares, a row an epoch."""
    epochs = []
    for row in MetricsFile(run.metrics).read():
        shares = {
            name.removeprefix(_LOGGED): value
            for name, value in row.items()
            if name.startswith(_LOGGED)
        }
        if shares:
            epochs.append({"epoch": row["epoch"], **shares})
    return epochs


def _column(measured: Content) -> list[str]:
    """The cells of one checkpoint."""
    return [
        str(measured["epoch"]),
        "averaged" if measured["averaged"] else "raw",
        str(measured["decoder_rank"]),
        f"{measured['num_words']:,}",
        *(f"{measured[share]:.4f}" for share in _SHARES),
    ]


def _check(content: Content) -> None:
    """Raises an error of Python's where something is missing that the report reads."""
    for name in _IN_REPORT:
        number(content[name])
    whole(content["decoder_rank"]), whole(content["num_contexts"])


def _table(study: Study, files: Files) -> tuple[Table | None, list[str]]:
    """Means over seeds, and the groups without a measurement."""
    rows, without = [], []
    for group in study.groups:
        contents = [*files.of_runs(group.runs, GradientBottleneck, check=_check).values()]
        if not contents:
            without.append(group.label)
            continue
        shares = [
            spread_of(
                [100 * content[name] for content in contents if content.get(name) is not None]
            )
            for name in _IN_REPORT
        ]
        first = contents[0]
        cells = [whole(first.get("decoder_rank")), whole(first.get("num_contexts"))]
        rows.append([word(group.label), *cells, *(spread_cell(share, 2) for share in shares)])
    if not rows:
        return None, without
    columns = [
        Column("head", is_text=True),
        Column("decoder's rank"),
        Column("contexts"),
        *(Column(f"{_SHARES[name]}, %", ("mean", "sd")) for name in _IN_REPORT),
    ]
    caption = (
        "Share of the norm of the loss gradient at the logits that reaches the context vectors "
        f"through the decoder, {study.short}: mean ± one standard deviation over seeds."
    )
    return Table("gradient_bottleneck", "Gradient bottleneck", caption, columns, rows), without
