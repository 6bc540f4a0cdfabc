"""First epochs at full size beside logs that others published: keeps, compares and draws them.

    python docs/fidelity/full_size.py [FOLDER ...]

keeps the epochs of these runs, finished or not, in `epochs.csv`, draws `full_size.svg` and writes
the tables of `docs/fidelity.md` from what is kept. The table of ranks is of the finished runs in
`runs`, which `copy_finished` of `docs/study/keeping.py` put there.

What a log prints is not quite a perplexity, so ours is put into its terms. The authors' program
prints a mean of every 200 windows: it divides the first, of 201, by 200, and drops what is left at
the end of an epoch. Training perplexity is the geometric mean of what is printed. The valid loss is
divided by one row more than there is to predict.
"""

import argparse
import itertools
import re
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from lmkit.presentation.figures import COLUMN, DASHES, house_style, log_perplexities, marks, to_svg
from lmkit.presentation.styled import plus_minus, signed
from lmkit.presentation.tables import DASH
from lmkit.results.frame import ranks_in, results
from lmkit.results.published import published_curves
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile

HERE = Path(__file__).parent
EPOCHS, RUNS = HERE / "epochs.csv", HERE / "runs"
PRINTED_EVERY = 200  # windows
VALID_ROWS = {"penn": 7_376, "wt2": 21_764}  # of ten columns of the split
# Of each experiment, the log that is nearest in settings.
NEAREST = {
    "penn_mos_nt": "mos_ptb",
    "penn_softmax_nt": "frage_ptb",
    "wt2_softmax_nt": "gluonnlp_wt2_1150",
}
# Of another experiment, where there is no log with an experiment's settings.
LOGS_OF = {"penn_softmax_nt": "penn_awd_lstm"}
PRINTED_FIRST = {"mos_ptb": (1_107, 649), "mos_ptb_variational": (1_103, 652)}  # in epoch 1
Row = tuple[int, int, int, str]  # of a table: its kind, the epoch, a place in it, its name
RUN = ["experiment", "seed", "precision", "device"]
LEVELS = ("0.001", "0.0001", "1e-05")  # of the largest singular value
TRUNCATION = "truncation_test_10000"
PRECISIONS = {"32-true": "float32", "bf16-mixed": "bfloat16"}


def epochs_of(folder: Path) -> pd.DataFrame:
    """A row an epoch of a run with `windows.csv`: what a log would print, and valid perplexity."""
    run = RunFolder(folder)
    config = run.read_config()
    windows = pd.read_csv(folder / "windows.csv", names=["epoch", "window", "nll"])
    losses = windows.drop_duplicates(["epoch", "window"], keep="last").groupby("epoch")["nll"]
    rows = VALID_ROWS[config["name"].split("_")[0]]
    found = []
    for row in MetricsFile(run.metrics).read():
        if (valid := row.get("valid/ppl")) is not None:
            printed = printed_losses(losses.get_group(row["epoch"]).to_numpy())
            found.append(
                {
                    "epoch": int(row["epoch"]),
                    "printed": " ".join(f"{ppl:.2f}" for ppl in np.exp(printed)),
                    "train": np.exp(np.mean(printed)),
                    "valid": valid ** ((rows - 1) / rows),
                    "valid_ppl": valid,
                }
            )
    of = {"experiment": config["name"], "seed": config["seed"]}
    of |= {"precision": config["trainer"]["precision"], "device": device_of(run)}
    return pd.DataFrame(found).assign(**of)


def device_of(run: RunFolder) -> str:
    """What a run trains on, such as CPU or H200, by the first line of its log."""
    found = re.search(r"parameters, (?:NVIDIA )?(\w+)", run.log.read_text("utf-8"))
    assert found, run.log
    return found[1]


def printed_losses(losses: np.ndarray) -> np.ndarray:
    """The means that the authors' program prints of an epoch's windows."""
    ends = range(PRINTED_EVERY + 1, len(losses) + 1, PRINTED_EVERY)
    parts = np.split(losses, ends)[: len(ends)]
    return np.array([part.sum() / PRINTED_EVERY for part in parts])


def logs_of(experiment: str) -> pd.DataFrame:
    """Published logs of an experiment, or of the one that is nearest to it."""
    logs = published_curves()
    return logs[logs["experiment"] == LOGS_OF.get(experiment, experiment)]


def by_run(ours: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The epochs of each run, by what tables and legends call it."""
    return {
        f"lmkit, seed {seed}, {PRECISIONS[precision]}, {device}": of
        for (_, seed, precision, device), of in ours.groupby(RUN)
    }


def table(ours: pd.DataFrame, experiment: str) -> str:
    """In Markdown, what our runs and a log print in some epochs; and by how many per cent each of
    ours is above the nearest log.
    """
    mine = {name: rows_of(of) for name, of in by_run(ours).items()}
    logs = logs_of(experiment).rename(columns={"train_ppl": "train", "valid_ppl": "valid"})
    theirs = {log: rows_of(of) for log, of in logs.groupby("log", sort=False)}
    for log in theirs.keys() & PRINTED_FIRST.keys():
        theirs[log] |= of_windows(PRINTED_FIRST[log])
    nearest = NEAREST[experiment]
    columns = ["printed", "epoch", *mine, *theirs, f"lmkit above {nearest}"]
    lines = []
    ends = {max(epoch for _, epoch, *_ in of) for of in mine.values()}
    printed = {row for of in theirs.values() for row in of}
    for row in sorted(printed & {row for of in mine.values() for row in of}):
        if not is_shown(row[1], ends):
            continue
        values = np.array([of.get(row, np.nan) for of in (*mine.values(), *theirs.values())])
        above = 100 * (values[: len(mine)] / theirs[nearest].get(row, np.nan) - 1)
        percents = ", ".join(signed(each, 1) for each in above if not np.isnan(each))
        shown = [plus_minus(value, np.nan, 1) for value in values]
        _, epoch, _, name = row
        lines.append([name, str(epoch), *shown, f"{percents} %" if percents else DASH])
    return markdown(columns, lines)


def markdown(columns: list[str], lines: list[list[str]]) -> str:
    """A table in Markdown."""
    every = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in every)


def is_shown(epoch: int, ends: Collection[int]) -> bool:
    """Whether a table has rows of that epoch: a few, and the last one of each run."""
    return epoch <= 5 or epoch == 10 or epoch % 20 == 0 or epoch in ends


def rows_of(epochs: pd.DataFrame) -> dict[Row, float]:
    """The values of a run or a log."""
    found = {}
    for of in epochs.to_dict("records"):
        if of["epoch"] == 1 and "printed" in of:
            found |= of_windows(map(float, of["printed"].split()))
        found[(1, of["epoch"], 0, "training")] = of["train"]
        found[(2, of["epoch"], 0, "valid")] = of["valid"]
    return found


def of_windows(printed: Iterable[float]) -> dict[Row, float]:
    """What is printed in the first epoch."""
    ends = ((i, PRINTED_EVERY * i + 1) for i in itertools.count(1))
    return {
        (0, 1, i, f"windows {end - PRINTED_EVERY + 1 if i > 1 else 1} to {end}"): value
        for (i, end), value in zip(ends, printed, strict=False)
    }


@house_style()
def drawn(ours: pd.DataFrame) -> str:
    """As SVG, valid perplexity over epochs: published logs as lines, our runs as points."""
    experiments = ours["experiment"].unique()
    size = COLUMN[0] * len(experiments), 1.4 * COLUMN[1]
    figure = Figure(size, layout="constrained")
    all_axes = figure.subplots(1, len(experiments), squeeze=False)[0]
    for axes, name in zip(all_axes, experiments, strict=True):
        runs = ours[ours["experiment"] == name]
        last = runs["epoch"].max() + 1
        for dash, (log, of) in zip(DASHES, logs_of(name).groupby("log", sort=False), strict=False):
            of = of[of["epoch"] <= last]
            axes.plot(of["epoch"], of["valid_ppl"], linestyle=dash, color="0.5", label=log)
        for (run, of), mark in zip(by_run(runs).items(), marks(), strict=False):
            axes.plot(of["epoch"], of["valid"], linestyle="", label=run, **mark, markersize=3)
        axes.set_title(name)
        axes.set(xlabel="epoch", ylabel="valid perplexity")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        log_perplexities(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return to_svg(figure, "full_size")


def rank_table(runs: pd.DataFrame) -> str:
    """In Markdown, ranks of log P on test of finished runs."""
    columns = ["run", "epochs", "valid", "test", "contexts", "Press rank"]
    columns += [*(f"{level}-effective" for level in LEVELS), "k of KL 0.01", "KL at the bound"]
    kinds = ["press", *(f"effective_{level}" for level in LEVELS)]
    lines = []
    for _, run in runs.sort_values("test_ppl").iterrows():
        (contexts,) = (n for n, column in ranks_in(runs).items() if pd.notna(run[column]))
        name = f"`{run['experiment']}`, seed {run['seed']}"
        ranks = [run[f"rank.{kind}@{contexts}"] for kind in kinds]
        counts = [f"{count:,.0f}" for count in (contexts, *ranks)]
        perplexities = [f"{run[column]:.2f}" for column in ("valid_ppl", "test_ppl")]
        enough, lost = run[f"{TRUNCATION}.rank_enough"], run[f"{TRUNCATION}.divergence_at_bound"]
        cut = [DASH, DASH] if pd.isna(enough) else [f"{enough:,.0f}", f"{abs(lost):.4f}"]
        lines.append([name, str(run["epochs"]), *perplexities, *counts, *cut])
    return markdown(columns, lines)


def write_page(ours: pd.DataFrame, page: Path) -> None:
    """Puts the tables between the page's markers."""
    text = page.read_text("utf-8")
    tables = {experiment: table(of, experiment) for experiment, of in ours.groupby("experiment")}
    for name, content in {**tables, "ranks": rank_table(results(str(RUNS)))}.items():
        marker = f"<!-- {name} -->"
        text, found = re.subn(
            f"{marker}.*?{marker}", f"{marker}\n{content}\n{marker}", text, flags=re.S
        )
        assert found == 1, f"{page}: no place for {name}"
    page.write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="*", type=Path, help="of a run")
    kept = [pd.read_csv(EPOCHS)] if EPOCHS.exists() else []
    ours = pd.concat([*kept, *map(epochs_of, parser.parse_args().folders)])
    ours = ours.drop_duplicates([*RUN, "epoch"], keep="last").sort_values([*RUN, "epoch"])
    ours[[*RUN, *ours.columns.drop(RUN)]].to_csv(EPOCHS, index=False)
    (HERE / "full_size.svg").write_text(drawn(ours), "utf-8")
    write_page(ours, HERE.parent / "fidelity.md")


if __name__ == "__main__":
    main()
