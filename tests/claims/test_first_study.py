"""The first study: what its text says follows from the tables of the runs that are kept."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from statistics import mean
from types import SimpleNamespace

import first_study as study
import numpy as np
import pytest
from keeping import filled

from lmkit.comparison.correlation import Correlation, correlate
from lmkit.runs.selection import select_runs

DID_NOT_TRAIN = "MoS (K=1, ET 7), failed"
BEST = "GSS (c=1.5, k=2.5, ET 7)"
PPL, PRESS = "test perplexity mean", "Press rank (10,000 contexts) mean"
Row = dict[str, float]


def interval(row: Row) -> tuple[float, float]:
    return row["95 % interval, method low"], row["95 % interval, method high"]


def test_the_kept_runs_are_whole_and_of_the_named_commit():
    selected = select_runs("runs", str(study.KEPT))
    assert not selected.left_out
    assert {run.result.provenance["git"]["dirty"] for run in selected.runs} == {False}
    (commit,) = {run.result.provenance["git"]["commit"] for run in selected.runs}
    assert f"git worktree add ../own-study {commit[:7]}\n" in study.TEMPLATE.read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_its_tables_are_those_of_the_kept_runs(lmkit, monkeypatch, tmp_path):
    run = SimpleNamespace(run=lambda words, check: lmkit(*words[3:]))  # after python -m lmkit
    monkeypatch.setattr(study, "subprocess", run)
    study.make_report(tmp_path / "all")
    study.make_report(tmp_path / "heads", study.SIX_HEADS)
    (tmp_path / "heads/tables").rename(tmp_path / "all/tables/heads")
    made, kept = study.tables(tmp_path / "all/tables"), study.tables()
    assert made.keys() == kept.keys()
    for table, rows in made.items():
        assert rows.keys() == kept[table].keys(), table
        for row, cells in rows.items():
            assert cells == {
                column: value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
                for column, value in kept[table][row].items()
            }


def test_its_text_is_its_template_with_the_numbers_of_its_tables():
    assert study.README.read_text("utf-8") == filled(study.TEMPLATE, study.numbers())


def test_what_its_text_says_follows_from_its_tables():
    """Sentence by sentence, what the numbers in them are said to mean."""
    known = study.tables()
    heads, against, pairs = (
        known[f"heads/{table}"] for table in ("performance", "significance", "pairs")
    )
    assert {row["seeds"] for row in heads.values()} == {3}
    for head in ("MoS", "SS", "MoC", "GSS"):
        assert interval(against[head])[1] < 0
    assert {row["device"] for row in known["origins"].values()} == {"AMD EPYC"}
    low, high = interval(against["LMS-PLIF"])
    assert low < 0 < high
    ranks = {head: row[PRESS] for head, row in heads.items()}
    perplexities = {head: row[PPL] for head, row in heads.items()}
    assert max(ranks, key=ranks.__getitem__) == "MoS"
    assert min(perplexities, key=perplexities.__getitem__) == "MoS"
    assert heads["MoC"]["parameters, M"] == heads["MoS"]["parameters, M"]
    assert known["heads/settings"]["MoC"] | {"head": "MoS"} == known["heads/settings"]["MoS"]
    assert interval(pairs["MoC / MoS"])[0] > 0
    assert ranks["MoC"] == ranks["Softmax"] == 64 + 2 < ranks["LMS-PLIF"]
    assert interval(pairs["LMS-PLIF / MoC"])[0] > 0
    assert ranks["GSS"] == pytest.approx(ranks["SS"], rel=0.05)
    assert interval(pairs["SS / GSS"])[1] < 0
    two, best = (known["performance"][name] for name in ("MoS (K=2, ET 7)", BEST))
    assert two["seeds"] == best["seeds"] == 1
    assert best[PRESS] == pytest.approx(two[PRESS], rel=0.02)
    assert best[PPL] < two[PPL] - 10


def test_what_its_text_says_of_measures_of_rank_follows_from_its_tables():
    known = study.tables()
    between_heads = known["heads/rank_measures"].values()
    measures = {row["measure"]: row for row in between_heads}
    assert len(measures) == len(between_heads) == 6
    assert measures["Press rank"]["95 % interval of r, Fisher high"] < 0
    trained = {name: row for name, row in known["ranks_10000"].items() if name != DID_NOT_TRAIN}
    effective = {name: row["1e−3-effective rank mean"] for name, row in trained.items()}
    assert max(effective, key=effective.__getitem__) == BEST
    assert min(effective.values()) == effective["Softmax (ET 7)"] < effective[BEST] < 66 / 4
    finer = {name: row["1e−5-effective rank mean"] for name, row in trained.items()}
    assert finer["Softmax (ET 7)"] < 66 < finer[BEST] < finer["MoS (K=5, ET 7)"]
    stable = [row["stable rank mean"] for row in trained.values()]
    assert stable[0] == min(stable)
    assert round(100 / max(stable)) == 99  # %, of the sum of squares

    def press_and_perplexity(heads: Iterable[Row]) -> Correlation:
        heads = list(heads)
        return correlate([row[PRESS] for row in heads], [row[PPL] for row in heads])

    of_six = known["heads/performance"]
    without_mos = press_and_perplexity(row for head, row in of_six.items() if head != "MoS")
    assert without_mos.n == 5
    assert without_mos.pearson_low < 0 < without_mos.pearson_high
    alike: dict[str, list[Row]] = {}
    for name, row in known["performance"].items():
        alike.setdefault(name.partition(" (")[0], []).append(row)
    all_means, trained_means = (
        [
            {of: mean(row[of] for row in rows if row is not left_out) for of in (PPL, PRESS)}
            for rows in alike.values()
        ]
        for left_out in (None, known["performance"][DID_NOT_TRAIN])
    )
    r = press_and_perplexity(all_means).pearson
    assert f"r between heads would be {r:.2f}, of the other sign" in study.README.read_text("utf-8")
    assert r > 0 > press_and_perplexity(trained_means).pearson
    between = known["rank_measures"]["between heads / Press rank"]
    assert between["Pearson's r"] == measures["Press rank"]["Pearson's r"]  # the same six
    assert between["p of ρ"] > 0.05  # they cannot tell


def test_what_its_text_says_of_gss_over_c_and_k_follows_from_its_tables():
    known = study.tables()
    heads, runs = known["performance"], known["runs"]
    grid = {
        (c, k): heads[f"GSS (c={c}, k={k}, ET 7)"]
        for c, k in product(("−1.5", "0", "1.5"), ("1.5", "2", "2.5"))
    }
    assert [row["seeds"] for row in grid.values()] == [1, 1, 3, 1, 1, 1, 1, 1, 1]
    perplexity = np.array([row[PPL] for row in grid.values()]).reshape(3, 3)
    assert (np.diff(perplexity, axis=0) < 0).all()
    assert (np.diff(perplexity, axis=1) < 0).all()
    press = np.array([row[PRESS] for row in grid.values()]).reshape(3, 3)
    assert (np.diff(press, axis=1) > 0).all()
    of_six = known["heads/performance"]
    perplexities = [row[PPL] for row in of_six.values()]
    assert perplexity.max() - perplexity.min() > max(perplexities) - min(perplexities)
    assert heads[BEST]["parameters, M"] == of_six["Softmax"]["parameters, M"]
    (best,), (mos,), (as_ss,), (of_ss,) = (
        [row for row in runs.values() if (row["head"], row["seed"]) == (head, 141)]
        for head in (BEST, "MoS (K=5, ET 7)", "GSS (c=0, k=2, ET 7)", "SS")
    )
    assert runs["penn_study_softmaxes-8addb7b91a73"] is mos
    assert best["test perplexity"] < mos["test perplexity"]
    assert best["test perplexity"] == min(row["test perplexity"] for row in runs.values())
    assert best["Press rank"] < mos["Press rank"]
    digits = ("valid perplexity", "test perplexity", "Press rank")
    assert [as_ss[each] for each in digits] == [of_ss[each] for each in digits]
    over = {row["measure"]: row for name, row in known["rank_measures"].items()
            if name.startswith("GSS over (c, k)")}  # fmt: skip
    press_rank = over.pop("Press rank")
    assert len(over) == 5
    for measure, row in over.items():
        assert row["Spearman's ρ"] < press_rank["Spearman's ρ"], measure
        assert row["Pearson's r"] < press_rank["Pearson's r"], measure


def test_heads_at_the_published_size_differ_as_its_text_says():
    known = study.tables()
    published = [known["heads/published"][f"{head} / test perplexity"]["published mean"]
                 for head in ("Softmax", "SS", "GSS", "LMS-PLIF")]  # fmt: skip
    assert max(published[:3]) - min(published[:3]) < 0.1 < min(published[:3]) - published[3]


def test_the_order_over_the_epochs_is_as_its_text_says():
    order = study.tables()["heads/order"]

    def places(column: str) -> list[str]:
        return sorted(order, key=lambda head: order[head][f"{column} place"])

    assert places("after 80 %") == ["MoS", "SS", "GSS", "MoC", "LMS-PLIF", "Softmax"]
    for column in ("after 90 %", "after 100 %"):
        assert places(column) == ["MoS", "SS", "MoC", "GSS", "LMS-PLIF", "Softmax"]
    raw = ["SS", "GSS", "MoS", "Softmax", "LMS-PLIF", "MoC"]
    assert places("after 100 %, not averaged") == raw
    runs = study.tables()["runs"].values()
    best = {run["best epoch"] for run in runs if run["head"] != DID_NOT_TRAIN}
    assert best == {10}
    low, high = interval(study.tables()["heads/pairs"]["GSS / MoC"])
    assert low < 0 < high


def test_nt_asgd_does_not_begin_and_averaging_lowers_rank_too_as_its_text_says():
    known = study.tables()
    runs = {(row["head"], row["seed"]): row for row in known["runs"].values()}
    for head, settings in (("Softmax", ""), ("GSS", "c=−1.5, k=2.5, "), ("MoS", "K=5, ")):
        never = known["averaging"][f"{head} / NT 2"]
        assert (never["switched after epoch"], never["seeds"]) == ("", 1)
        averaged, not_averaged = (
            runs[f"{head} ({settings}{trigger})", 141] for trigger in ("ET 7", "NT 2")
        )
        assert averaged["test perplexity"] < not_averaged["test perplexity"]
        # the same weights until averaging begins, and the same steps after it
        assert averaged["train perplexity"] == not_averaged["train perplexity"]
        if head == "Softmax":
            assert averaged["Press rank"] == not_averaged["Press rank"]
        else:
            assert averaged["Press rank"] < not_averaged["Press rank"]


def test_mixtures_of_few_and_of_many_components_are_as_its_text_says():
    known = study.tables()
    of_seed = {(row["head"], row["seed"]): row for row in known["runs"].values()}
    one = of_seed[DID_NOT_TRAIN, 141]
    two, five, ten = (of_seed[f"MoS (K={count}, ET 7)", 141] for count in (2, 5, 10))
    softmax = of_seed["Softmax (ET 7)", 141]
    assert known["runs"]["penn_study_softmaxes-8addb7b91a73"] is five
    assert known["runs"]["penn_study-fdd58f07f0c0"] is softmax
    seeds = {row["number of components K"]: row["seeds"] for row in known["experts"].values()}
    assert seeds == {1: 1, 2: 1, 5: 3, 10: 1}
    press, ppl = "Press rank", "test perplexity"
    assert one[press] == 1
    assert one[ppl] > 600 > two[ppl] > softmax[ppl] > ten[ppl] > five[ppl]
    assert five[press] > ten[press] > two[press] > softmax[press]
