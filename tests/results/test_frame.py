"""The frame says what runs' files say: a row a run, a column a fact."""

import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from lmkit.errors.user_error import UserError
from lmkit.results.frame import chosen, ranks_in, results
from lmkit.results.groups import grouped
from lmkit.runs.checksums import checked_json
from lmkit.runs.metrics import MetricsFile
from tests.results.forging import change


def test_a_row_holds_what_the_files_of_a_run_hold(tmp_path, make_run):
    run = make_run(tmp_path, 3, 56.9, rank=8904, transform="gss")
    (row,) = results(str(tmp_path)).to_dict("records")
    assert (row["head"], row["trunk"], row["corpus"], row["seed"]) == (
        *("GSS", "AWD-LSTM", "Penn Treebank", 3),
    )
    assert (row["state"], row["stopped"], row["epochs"]) == ("finished", "patience", 3)
    assert (row["head.transform.c"], row["head.transform.k"]) == (-1.5, 2.5)
    assert (row["test_ppl"], row["valid_ppl"], row["cost.parameters"]) == (56.9, 58.9, 24221600)
    assert (row["rank.press@10000"], row["rank.effective_0.001@10000"]) == (8904, 52)
    cost = row["rank.effective_1e-05@10000"], row["cost.seconds_per_epoch"], row["optimizer.lr"]
    assert cost == (306, 58.0, 20)
    assert row["folder"] == str(run)


def test_ranks_stand_by_their_number_of_contexts(tmp_path, make_run):
    make_run(tmp_path, 1, rank=402)
    later = make_run(tmp_path, 2, rank=403, contexts=82429)
    more = {"schema_version": 1, "kind": "rank", "split": "test", "checkpoint": "best"}
    more |= {"spectrum": {"num_contexts": 10000, "press_rank": 398, "effective_rank": {}}}
    (later / "analysis" / "rank_test_log_probs_10000.json").write_bytes(checked_json(more))
    more |= {"split": "valid", "spectrum": more["spectrum"] | {"press_rank": 5}}
    (later / "analysis" / "rank_valid_log_probs_10000.json").write_bytes(checked_json(more))
    table = results(str(tmp_path))
    assert ranks_in(table).keys() == {10000, 82429}
    ranks = table.set_index("seed")[list(ranks_in(table).values())].to_dict("index")
    assert ranks[2] == {"rank.press@10000": 398, "rank.press@82429": 403}
    assert ranks[1]["rank.press@10000"] == 402
    assert pd.isna(ranks[1]["rank.press@82429"])
    assert table["rank_valid_log_probs_10000.spectrum.press_rank"].max() == 5  # of valid


def test_a_number_of_any_size_is_read(tmp_path, make_run):
    for seed, norm in ((1, 10**20), (2, 1)):
        make_run(tmp_path, seed, options={"trainer.gradient_clip_val": norm})
    assert results(str(tmp_path))["trainer.gradient_clip_val"].max() == 1e20


def test_any_analysis_is_found_and_one_of_another_text_stays_apart(tmp_path, make_run):
    run = make_run(tmp_path)
    for name, ppl in (("evaluate_test", 39.67), ("evaluate_test@other", 8.15)):
        content = {"schema_version": 7, "kind": "mine", "ppl": ppl, "values": [1, 2]}
        (run / "analysis" / f"{name}.json").write_bytes(checked_json(content))
    (run / "analysis" / "broken.json").write_text("{")
    (row,) = results(str(tmp_path)).to_dict("records")
    assert row["evaluate_test.ppl"] == 39.67
    assert row["evaluate_test@other.ppl"] == 8.15
    assert "analysis/broken.json" in row["unread"]
    assert row["test_ppl"] == 57.0


def test_an_earlier_version_of_an_analysis_has_no_column_with_a_later_one(tmp_path, make_run):
    for version in (1, 2):
        run = make_run(tmp_path, version)
        for name, content in (("mine", {"value": version / 2}), ("alone", {"value": 3})):
            content |= {"schema_version": version if name == "mine" else 1, "kind": name}
            (run / "analysis" / f"{name}.json").write_bytes(checked_json(content))
    table = results(str(tmp_path)).set_index("seed")
    assert table["mine.value"].dropna().to_dict() == {2: 1.0}
    assert "analysis/mine.json: another run's is of a later version" in table.loc[1, "unread"]
    assert pd.isna(table.loc[2, "unread"])
    assert table["alone.value"].to_list() == [3, 3]


def _with_test_ppl(run: Path, ppl: float) -> None:
    change(run, "result.json", lambda c: c["metrics"].update(test_ppl=ppl))


def _diverges(run: Path) -> None:
    (run / "result.json").unlink()
    (run / "train.log").write_text("2026-11-30 16:50:11  stopped at step 2: a loss is not finite\n")


@pytest.mark.parametrize(
    ("break_it", "state", "reason"),
    [
        (lambda run: (run / "result.json").write_text("{"), "damaged", "result.json is damaged"),
        (lambda run: (run / "result.json").unlink(), "unfinished", None),
        (lambda run: _with_test_ppl(run, math.nan), "failed", "it diverged"),
        (lambda run: _diverges(run), "failed", "it diverged"),
        (lambda run: _with_test_ppl(run, 115.0), "failed", "more than twice the median"),
        (lambda run: _with_test_ppl(run, 113.0), "finished", None),
    ],
)
def test_what_happened_to_a_run_is_said(tmp_path, make_run, break_it, state, reason):
    for seed in (1, 2, 3):
        run = make_run(tmp_path, seed)
    break_it(run)
    row = results(str(tmp_path)).loc[run.name]
    assert row["state"] == state
    assert pd.isna(row["reason"]) if reason is None else reason in row["reason"]
    assert (results(str(tmp_path))["state"] == "finished").sum() == 2 + (state == "finished")


@pytest.mark.parametrize("ppl", [math.nan, 300.0])
def test_a_copy_of_a_run_that_failed_has_not_failed(tmp_path, make_run, ppl):
    for seed in (1, 2, 3):
        run = make_run(tmp_path / "runs", seed)
    _with_test_ppl(shutil.copytree(run, tmp_path / "copies" / run.name), ppl)
    table = results([str(tmp_path / "runs"), str(tmp_path / "copies")])
    failed = table.loc[table["state"] == "failed", "test_ppl"]
    assert failed.to_list() == pytest.approx([ppl], nan_ok=True)
    assert len(table) == 4
    runs, _ = grouped(table)
    expected = {"Softmax": 3} | ({} if math.isnan(ppl) else {"Softmax, failed": 1})
    assert runs["label"].value_counts().to_dict() == expected


def test_a_run_is_judged_by_those_of_the_same_kind_of_trunk(tmp_path, make_run):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed)
    make_run(tmp_path, 4, 300.0, trunk="Transformer", options={"max_epochs": 3})
    make_run(tmp_path, 4, 300.0, options={"head.decoder_rank": 1})
    assert set(results(str(tmp_path))["state"]) == {"finished"}


def test_the_epochs_of_an_unfinished_run_are_those_that_it_has_completed(tmp_path, make_run):
    run = make_run(tmp_path, 2, 130.7, 66)
    for file in ("result.json", "metrics.csv"):
        (run / file).unlink()
    metrics, epochs = MetricsFile(run / "metrics.csv"), []
    for step, epoch, name in ((5, 1, "train/nll"), (9, 1, "valid/ppl"), (10, 2, "train/nll")):
        metrics.append(step, epoch, {name: 4.0})
        epochs += results(str(tmp_path))["epochs"].tolist()
    assert epochs == [0, 1, 1]


def test_an_option_that_only_later_runs_state_is_at_its_default_in_earlier_ones(tmp_path, make_run):
    make_run(tmp_path, 1, options={"optimizer.lr": 5.0})
    earlier = make_run(tmp_path, 2, options={"optimizer.lr": 5.0})
    change(earlier, "identity.json", lambda c: c["settings"]["head"].pop("decoder_rank"))
    change(earlier, "identity.json", lambda c: c["settings"]["trunk"].pop("embedding_noise"))
    table = results(str(tmp_path))
    assert table["trunk.embedding_noise"].nunique(dropna=False) == 1
    assert table["head.decoder_rank"].isna().all()


def test_columns_are_chosen_by_names_and_patterns(tmp_path, make_run):
    make_run(tmp_path)
    table = results(str(tmp_path), columns=["seed", "rank.press@*"])
    assert list(table.columns) == ["seed", "rank.press@10000"]
    with pytest.raises(UserError, match="no run has 'test_pl'"):
        chosen(table.assign(test_ppl=1.0), ["test_pl"])
