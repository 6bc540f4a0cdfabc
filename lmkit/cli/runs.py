"""Shows runs, finished or not, as a table or as CSV: `lmkit runs "runs head:gss" sort=test_ppl`."""

import fnmatch
import sys

import pandas as pd

from lmkit.cli.words import RUNS_DIR, TRUTH, Command, Option
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.presentation.tables import Column, counted, plain_table
from lmkit.results.frame import chosen, results
from lmkit.results.groups import grouped, heads
from lmkit.sweeps import tables

SHOWN = "state,head,epochs,valid_ppl,test_ppl,rank.press@*,cost.seconds_per_epoch"
COMMAND = Command(
    "lmkit runs",
    "RUNS",
    "One row per run, by its name. RUNS is as lmkit report takes it; nothing: the folder runs.",
    {
        "columns": Option(
            "", f"names or patterns; empty: {SHOWN}, and in CSV all that any run has"
        ),
        "sort": Option("", "the column to sort by; -test_ppl: in descending order"),
        "best": Option(
            "", "head: of each head on each corpus and trunk, the runs at its best rate", ("head",)
        ),
        "csv": Option("false", "true: as CSV, in full precision", TRUTH),
        "runs_dir": RUNS_DIR,
    },
    """\
  lmkit runs                                    all runs in the folder runs
  lmkit runs "runs head:gss" sort=test_ppl      those with that head, the best first
  lmkit runs runs best=head                     each head at its best learning rate on valid
  lmkit runs "runs state:unfinished"
  lmkit runs gss_grid_penn columns=head.transform.*,test_ppl
  lmkit runs runs csv=true > all.csv            settings and results of each run
""",
    least=0,
)


def main() -> None:
    places, given = COMMAND.read(sys.argv[1:])
    runs = results(places or [given["runs_dir"]], given["runs_dir"])
    for name, reason in runs.loc[runs["state"] == "damaged", "reason"].items():
        print(f"damaged: {name}: {reason}", file=sys.stderr)
    if runs.get("code.has_changed", pd.Series(dtype=bool)).any():
        count = counted(int(runs["code.has_changed"].sum()), "run")
        print(f"{count} came from code that has changed since", file=sys.stderr)
    if given["best"]:
        finished, _ = grouped(runs)
        if finished.empty:
            raise UserError("best=head: no run has finished with finite perplexities")
        runs = heads(finished)
    runs = by_column(runs, given["sort"]) if given["sort"] else runs
    names = given["columns"]
    if names.startswith("[") and names.endswith("]"):  # as Hydra's commands take a list
        names = names[1:-1]
    columns = [name.strip() for name in names.split(",")] if names else None
    if given["csv"] == "true":
        shown = runs if columns is None else runs[chosen(runs, columns)]
        print(shown.to_csv(lineterminator="\n"), end="")
    else:
        show(runs, columns)


def by_column(runs: pd.DataFrame, sort: str) -> pd.DataFrame:
    """Sorted by a column, descending where a - precedes it; runs without a value come last.

    Raises: UserError for a column that no run has.
    """
    key = sort.removeprefix("-")
    if key not in runs and key != runs.index.name:
        near = did_you_mean(key, list(runs.columns))
        raise UserError(f"sort: no run has {key!r}{near}; csv=true shows all columns")
    ascending = not sort.startswith("-")
    return runs.sort_values(key, ascending=ascending, kind="stable", key=_sortable)


def _sortable(column: pd.Series) -> pd.Series:
    """Numbers beside texts, such as `32` and `bf16-mixed`, as texts."""
    is_mixed = pd.api.types.infer_dtype(column, skipna=True).startswith("mixed")
    return column.map(str, na_action="ignore") if is_mixed else column


def show(runs: pd.DataFrame, columns: list[str] | None) -> None:
    """Prints the table. Raises: UserError for a column that no run has."""
    if columns is None:  # of which runs may lack some
        columns = [name for name in SHOWN.split(",") if fnmatch.filter(runs.columns, name)]
    shown = runs[chosen(runs, columns)]
    is_text = [not pd.api.types.is_numeric_dtype(shown[name]) for name in shown]
    headings = [Column(str(name), is_text=text) for name, text in zip(shown, is_text, strict=True)]
    whole = shown.astype(object).to_numpy()  # else integers beside floats were floats
    rows = [[name, *map(_entry, row)] for name, row in zip(shown.index, whole, strict=True)]
    table = plain_table(counted(len(rows), "run"), [Column("name", is_text=True), *headings], rows)
    tables.console().print(table)


def _entry(value: object) -> str | None:
    if value is None or value is pd.NA or value != value:
        return None
    return f"{value:.5g}" if isinstance(value, float) else str(value)
