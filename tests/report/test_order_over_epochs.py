"""The table that says whether the order of the groups was settled when training ended."""

from __future__ import annotations

from pathlib import Path

from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import studies
from lmkit.comparison.run_files import Files
from lmkit.report.training import order_over_epochs
from lmkit.runs.selection import select_runs

# valid perplexity after each of ten epochs; the two heads change places after the eighth
SOFTMAX = [90, 80, 70, 60, 50, 46, 45, 44, 43, 42]
GSS = [91, 81, 71, 61, 51, 48, 47, 46, 42, 40]


def write_metrics(run: Path, rows: list[str]) -> None:
    """The rows of a finished run: those of its epochs, and that of the test."""
    columns = "step,epoch,valid/ppl,valid/ppl_raw,test/ppl"
    (run / "metrics.csv").write_text("\n".join([columns, *rows, "101,10,,,55.0"]) + "\n")


def test_places_are_those_of_means_after_shares_of_the_epochs(tmp_path, make_run):
    for seed, above in ((1, 0), (2, 2)):
        for transform, perplexities in (("identity", SOFTMAX), ("gss", GSS)):
            run = make_run(tmp_path, seed, 55.0, 402, transform=transform)
            write_metrics(
                run, [f"{10 * i},{i},{ppl + above},," for i, ppl in enumerate(perplexities, 1)]
            )
    runs = select_runs("runs", str(tmp_path)).runs
    (study,), _ = studies(runs, "softmax", experiment_config, Files())
    (table,) = order_over_epochs(study, Files())
    assert [column.name for column in table.columns] == [
        "head", "seeds", "after 50 %", "after 80 %", "after 90 %", "after 100 %",
    ]  # fmt: skip
    by_head = {row[0].text: [cell.values for cell in row[2:]] for row in table.rows}
    softmax, gss = (next(v for k, v in by_head.items() if k.startswith(n)) for n in ("Soft", "GSS"))
    assert softmax == [(51, 1), (45, 1), (44, 2), (43, 2)]
    assert gss == [(52, 2), (47, 2), (43, 1), (41, 1)]
    assert "1 pair of groups, 0 had another order after 90 % of the epochs" in table.caption
    assert "and 1 after 80 %" in table.caption


def test_what_averaging_does_to_the_order_is_told(tmp_path, make_run):
    for transform, raw in (("identity", 44.0), ("gss", 49.0)):
        run = make_run(tmp_path, 1, 55.0, 402, transform=transform)
        perplexities = SOFTMAX if transform == "identity" else GSS
        raws = [""] * 9 + [raw]
        write_metrics(
            run, [f"{10 * i},{i},{p},{raws[i - 1]}," for i, p in enumerate(perplexities, 1)]
        )
    runs = select_runs("runs", str(tmp_path)).runs
    (study,), _ = studies(runs, "softmax", experiment_config, Files())
    (table,) = order_over_epochs(study, Files())
    assert [column.name for column in table.columns][-1] == "after 100 %, not averaged"
    places = {row[0].text: (row[-2].values, row[-1].values) for row in table.rows}
    assert places == {"Softmax": ((42, 2), (44, 1)), "GSS": ((40, 1), (49, 2))}
    assert table.caption.endswith("of averaged weights; the last column is not.")


def test_a_group_without_epochs_is_named(tmp_path, make_run):
    for transform in ("identity", "gss", "outside"):
        run = make_run(tmp_path, 1, 55.0, 402, transform=transform)
        write_metrics(run, [f"{10 * i},{i},{ppl},," for i, ppl in enumerate(GSS, 1)])
    (run / "metrics.csv").unlink()
    runs = select_runs("runs", str(tmp_path)).runs
    (study,), _ = studies(runs, "softmax", experiment_config, Files())
    (table,) = order_over_epochs(study, Files())
    assert len(table.rows) == 2
    assert table.notes == ["Cube has a run without the epochs in metrics.csv"]


def test_one_group_has_no_order(tmp_path, make_run):
    make_run(tmp_path, 1, 55.0, 402)
    runs = select_runs("runs", str(tmp_path)).runs
    (study,), _ = studies(runs, "softmax", experiment_config, Files())
    assert order_over_epochs(study, Files()) == []
