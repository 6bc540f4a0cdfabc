"""Published tables row by row: which runs stand beside which row, and which do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmkit.analyses.evaluate import Evaluate
from lmkit.cli.finetune import published_config
from lmkit.comparison.facts import Study, studies
from lmkit.comparison.published import published_tables
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import DASH, Table
from lmkit.report.beside_published import published_perplexities
from lmkit.runs.checksums import checked_json, parse_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs

TABLE_8 = {"lr": 0.002, "decay": 0.075, "epsilon": 0.001, "convention": "code", "length": 5,
           "batch_size": 100}  # fmt: skip
NT = {"mixture": "softmaxes", "trigger": "nt"}


def evaluated(run: Path, method: str, split: str, ppl: float, options: dict) -> None:
    head = {"schema_version": 1, "kind": "evaluate", "checkpoint": "best", "averaged": True}
    content = head | {"method": method, "split": split, "ppl": ppl, "options": options}
    (run / "analysis").mkdir(exist_ok=True)
    (run / "analysis" / f"evaluate_{method}_{split}.json").write_bytes(checked_json(content))


def study_of(root: Path) -> Study:
    (study,), _ = studies(select_runs("runs", str(root)).runs, "mos", published_config, Files())
    return study


def rows_of(table: Table) -> list[dict[str, str]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, (cell.text for cell in row), strict=True)) for row in table.rows]


def finetuned_from(run: Path) -> dict[str, object]:
    """Options of a run that finetunes MoS as published."""
    config = published_config("penn_mos_nt_finetune")
    changed = ("trigger", "patience", "max_epochs", "optimizer")
    start = {"identity": RunFolder(run).read_result().identity, "weights_sha256": "0" * 64}
    return {"finetuned_from": start} | {option: config[option] for option in changed}


def rows_beside(root: Path, key: str = "yang_ablation") -> list[dict[str, str]]:
    """The rows of a table that have runs beside them."""
    section = published_perplexities(study_of(root))
    (table,) = [block for block in section.blocks if block.key == key]
    return [row for row in rows_of(table) if row["runs"] != DASH]


@pytest.fixture
def chain(tmp_path, make_run) -> Path:
    """Two seeds of MoS as trained and finetuned; one finetuned run was evaluated dynamically."""
    for seed in (1, 2):
        trained = make_run(tmp_path, seed, 55.9 + 0.1 * seed, name="penn_mos_nt", **NT)
        tuned = make_run(tmp_path, seed, 54.3 + 0.1 * seed, name="penn_mos_nt_finetune",
                         mixture="softmaxes", trigger="asgd",
                         options=finetuned_from(trained))  # fmt: skip
    for split, ppl in (("valid", 48.4), ("test", 47.75)):
        evaluated(tuned, "dynamic", split, ppl, TABLE_8)
    return tmp_path


def test_each_stage_stands_beside_its_published_row(chain):
    section = published_perplexities(study_of(chain))
    stages = next(block for block in section.blocks if block.key == "yang_stages")
    rows = {(row["model"], row["stage"]): row for row in rows_of(stages)}
    found = {key: (row["runs"], row["test perplexity"], row["test, published"])
             for key, row in rows.items()}  # fmt: skip
    assert found["MoS", "as trained"] == ("2", "56.05 ± 0.07", "55.97")
    assert found["MoS", "finetuned"] == ("2", "54.45 ± 0.07", "54.44")
    assert found["MoS", "finetuned, dynamic"] == ("1", "47.75", "47.69")
    assert found["AWD-LSTM", "finetuned, cache"] == (DASH, DASH, "52.80")
    assert any("AWD-LSTM, finetuned, cache (penn_awd_lstm)" in line for line in section.missing)


def test_perplexities_of_fewer_seeds_than_the_row_say_of_how_many(chain):
    tuned = sorted(chain.glob("penn_mos_nt_finetune-*"))
    for run in tuned:
        evaluated(run, "dynamic", "test", 47.75, TABLE_8)
    section = published_perplexities(study_of(chain))
    stages = next(block for block in section.blocks if block.key == "yang_stages")
    (row,) = [row for row in rows_of(stages)
              if (row["model"], row["stage"]) == ("MoS", "finetuned, dynamic")]  # fmt: skip
    assert (row["runs"], row["test perplexity"]) == ("2", "47.75 ± 0.00")
    assert row["valid perplexity"] == "48.40 (1 seed)"
    (methods,) = Evaluate.sections(study_of(chain), Files())
    (dynamic,) = [row for row in rows_of(methods.blocks[0]) if row["method"] == "dynamic"]
    assert (dynamic["runs"], dynamic["valid perplexity"]) == ("2", "48.40 (1 seed)")


def test_another_table_of_the_same_runs_and_none_without_runs(chain):
    blocks = {block.key: block for block in published_perplexities(study_of(chain)).blocks}
    assert set(blocks) == {"yang_stages", "yang_ablation"}
    (mos, *others) = rows_of(blocks["yang_ablation"])
    assert (mos["valid perplexity"], mos["valid, published"]) == ("58.05 ± 0.07", "58.08")
    assert {row["test perplexity"] for row in others} == {DASH}


def test_other_values_of_the_method_do_not_stand_beside_the_published_ones(chain):
    for file in chain.glob("*/analysis/evaluate_dynamic_*.json"):
        content = parse_json(file.read_bytes())
        content["options"]["decay"] = 0.02
        file.write_bytes(checked_json(content))
    section = published_perplexities(study_of(chain))
    stages = next(block for block in section.blocks if block.key == "yang_stages")
    (dynamic,) = [row for row in rows_of(stages) if row["stage"] == "finetuned, dynamic"
                  and row["model"] == "MoS"]  # fmt: skip
    assert dynamic["test perplexity"] == DASH
    assert any("decay 0.02; published: decay 0.075" in note for note in stages.notes)


def test_a_chain_as_published_has_no_differences(chain):
    section = published_perplexities(study_of(chain))
    assert [block.notes for block in section.blocks] == [[], []]
    assert not any("not as published" in row for row in rows_beside(chain))


def test_a_row_says_what_differs_from_its_experiment(tmp_path, make_run):
    options = {"optimizer.lr": 5, "trunk.hidden_dropout": 0.5, "patience": 3}
    make_run(tmp_path, 1, 58.4, name="penn_mos_nt", options=options, **NT)
    (row,) = rows_beside(tmp_path)
    assert row["not as published"] == (
        "trunk.hidden_dropout=0.5 (0.225), optimizer.lr=5 (20) and 1 more"
    )
    section = published_perplexities(study_of(tmp_path))
    assert any("patience=3 (100)" in note for block in section.blocks for note in block.notes)


def test_a_finetuned_run_is_as_published_where_the_run_before_is_so_too(tmp_path, make_run):
    trained = make_run(tmp_path, 1, 58.4, name="penn_mos_nt", options={"patience": 3}, **NT)
    options = finetuned_from(trained)
    make_run(tmp_path, 1, 55.0, name="penn_mos_nt_finetune", mixture="softmaxes", trigger="asgd",
             options=options)  # fmt: skip
    (tuned,) = [row for row in rows_beside(tmp_path, "yang_stages") if row["stage"] == "finetuned"]
    assert tuned["not as published"] == "before: patience=3 (100)"
    options |= {"finetuned_from": {"identity": "0" * 12, "weights_sha256": "0" * 64}}
    make_run(tmp_path / "b", 1, 55.0, name="penn_mos_nt_finetune", mixture="softmaxes",
             trigger="asgd", options=options)  # fmt: skip
    (tuned,) = rows_beside(tmp_path / "b", "yang_stages")
    assert tuned["not as published"] == "runs that it begins with are not among these"


def test_the_nearest_number_of_components_stands_beside_the_published_one(tmp_path, make_run):
    make_run(tmp_path, 1, 58.4, name="penn_mos_nt", changes={"mixture.num_experts": 5}, **NT)
    (row,) = rows_beside(tmp_path)
    assert row["not as published"] == "head.mixture.num_experts=5 (15)"
    make_run(tmp_path, 1, 56.1, name="penn_mos_nt", **NT)
    (row,) = rows_beside(tmp_path)
    assert (row["test perplexity"], "not as published" in row) == ("56.10", False)


def test_a_run_of_another_name_stands_there_where_nothing_differs(tmp_path, make_run):
    make_run(tmp_path, 1, 56.1, name="mine", **NT)
    (row,) = rows_beside(tmp_path)
    assert (row["experiment"], row["test perplexity"]) == ("penn_mos_nt", "56.10")
    make_run(tmp_path / "b", 1, 56.1, name="mine", options={"optimizer.lr": 5}, **NT)
    assert published_perplexities(study_of(tmp_path / "b")).blocks == []


def test_every_finetuned_row_has_a_configuration():
    for corpus in ("penn", "wt2"):
        rows = [row for table in published_tables(corpus) for row in table.rows]
        for name in {row.experiment for row in rows if row.is_finetuned}:
            config = published_config(f"{name}_finetune")
            assert config["trigger"]["_target_"].endswith("FromStart")
    assert published_config("penn_mos_nt_finetune")["optimizer"]["lr"] == 25
    assert published_config("penn_mos_nt")["optimizer"]["lr"] == 20


def test_runs_of_another_corpus_have_no_published_tables(tmp_path, make_run):
    make_run(tmp_path, 1, 56.0, name="penn_mos_nt", sizes=(200, 500), **NT)
    section = published_perplexities(study_of(tmp_path))
    assert section.blocks == []
    assert "no published table is about PTB of this size" in section.missing


def test_every_method_is_listed_with_its_values_after_the_weights_as_they_are(chain):
    (section,) = Evaluate.sections(study_of(chain), Files())
    (table,) = section.blocks
    rows = rows_of(table)
    assert [row["method"] for row in rows] == ["static", "dynamic"]
    assert "decay 0.075" in rows[1]["values"]
    assert rows[1]["test perplexity"] == "47.75"
    assert rows[1]["difference on test"] == DASH  # one run of two was evaluated


def test_a_row_says_that_its_configuration_was_not_printed_and_compares_what_was(
    tmp_path, make_run
):
    make_run(tmp_path, 1, 55.0, mixture="softmaxes", name="penn_mos")
    make_run(tmp_path, 1, 57.0, name="penn_softmax")
    rows = {row["model"]: row["not as published"] for row in rows_beside(tmp_path, "ganea_results")}
    assert rows == {
        "Softmax": "AWD-LSTM of Merity et al. 2017, with NT-ASGD; configuration not printed",
        "MoS, K = 15": "configuration not printed, 21.5M parameters (26.6M)",
    }
