"""What is read of run folders, what is left out, and how runs become groups."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lmkit.comparison.groups import studies
from lmkit.comparison.published_runs import deviation, published_of
from lmkit.comparison.stored import Files
from lmkit.errors.user_error import UserError
from lmkit.report.performance import performance
from lmkit.runs.finished import collect, run_folders


def study_of(root: Path, baseline: str = "softmax"):
    found, left_out = studies(collect(run_folders(root)), baseline)
    assert len(found) == 1
    return found[0], left_out


def test_runs_that_differ_by_seed_alone_are_a_group(study_folder):
    study, left_out = study_of(study_folder)
    sizes = {group.label: len(group.runs) for group in study.groups}
    assert sizes["Softmax (ET 200)"] == 3
    assert sizes["Softmax (NT 5)"] == 1
    assert sizes["GSS (c=−1.5, k=2.5)"] == 3
    assert sizes["GSS (c=−2, k=1.5)"] == 1
    assert sizes["Cube"] == 1
    assert study.groups[0].head.family == "softmax"
    assert left_out == []
    assert study.title == "Penn Treebank"


def test_threads_and_chunks_are_no_groups_and_a_seed_counts_once(tmp_path, make_run):
    run = make_run(tmp_path, 1)
    twin = tmp_path / "twin"
    shutil.copytree(run, twin)
    payload = json.loads((twin / "identity.json").read_text())
    settings = payload["settings"]
    settings["threads"], settings["head"]["chunk_mb"] = 8, 64
    (twin / "identity.json").write_text(json.dumps(payload))
    study, left_out = study_of(tmp_path)
    assert [len(group.runs) for group in study.groups] == [1]
    assert [each.name for each in left_out] == ["twin"]
    assert run.name in left_out[0].reason


def test_damaged_unfinished_and_diverged_runs_are_left_out_with_their_reason(tmp_path, make_run):
    make_run(tmp_path, 1)
    damaged, unfinished, diverged, nameless = (make_run(tmp_path, seed) for seed in (2, 3, 4, 5))
    (damaged / "result.json").write_text('{"schema_version": 1, "metr')
    (unfinished / "result.json").unlink()
    result = json.loads((diverged / "result.json").read_text())
    result["metrics"]["test_ppl"] = float("inf")
    (diverged / "result.json").write_text(json.dumps(result))
    (nameless / "identity.json").unlink()
    (tmp_path / "sweeps").mkdir()
    collected = collect(run_folders(tmp_path))
    assert collected.num_runs == 1
    reasons = {each.name: each.reason for each in collected.left_out}
    assert reasons.keys() == {path.name for path in (damaged, unfinished, diverged, nameless)}
    assert "cannot be read as JSON" in reasons[damaged.name]
    assert reasons[unfinished.name] == "it has not finished"
    assert "diverged" in reasons[diverged.name]
    assert "identity.json" in reasons[nameless.name]


def test_the_baseline_is_the_group_that_differs_in_least(study_folder):
    study, _ = study_of(study_folder)
    by_label = {group.label: group for group in study.groups}
    softmax_et, softmax_nt = by_label["Softmax (ET 200)"], by_label["Softmax (NT 5)"]
    assert study.baseline_of(by_label["Cube"]) is softmax_et
    for group in study.groups:
        if group.head.family == "mos":
            is_nt = group.settings["trigger._target_"].endswith("NonMonotone")
            assert study.baseline_of(group) is (softmax_nt if is_nt else softmax_et)
    assert study.baseline_of(softmax_nt) is None


def test_a_baseline_that_no_run_has_is_named_with_those_there_are(study_folder):
    with pytest.raises(UserError, match=r"did you mean softmax.*gss"):
        study_of(study_folder, "sofmax")


def test_published_facts_go_to_the_published_head_on_the_published_corpus(tmp_path, make_run):
    make_run(tmp_path, 1, 57.26)
    make_run(tmp_path, 1, transform="gss")
    make_run(tmp_path, 1, transform="gss", changes={"transform.k": 1.25})
    make_run(tmp_path, 1, transform="outside")
    make_run(tmp_path, 1, mixture="softmaxes", trigger="nt")
    study, _ = study_of(tmp_path)
    found = {}
    for group in study.groups:
        published = published_of(group, study.corpus)
        found[group.label] = published and published.experiment
    assert found == {
        "Softmax": "penn_softmax",
        "GSS (k=1.25)": None,
        "GSS (k=2.5)": "penn_gss",
        "Cube": None,
        "MoS": "penn_mos_nt",
    }
    softmax = study.groups[0]
    published = published_of(softmax, study.corpus)
    assert published.differences == []
    assert deviation(softmax.spread("test_ppl"), published.facts.test_ppl) == pytest.approx(2.0)


def test_a_comparison_of_more_than_heads_says_so(tmp_path, make_run):
    make_run(tmp_path, 1)
    make_run(tmp_path, 1, transform="gss")
    make_run(tmp_path, 1, mixture="softmaxes", max_epochs=9)
    study, _ = study_of(tmp_path)
    tables = {table.key: table for table in performance(study, Files()).blocks}
    (note,) = tables["significance"].notes
    assert note == "MoS: from the baseline the runs differ in more than the head: max_epochs"


def test_nothing_is_published_of_another_corpus(tmp_path, make_run):
    make_run(tmp_path, 1, sizes=(200, 19999))
    study, _ = study_of(tmp_path)
    assert published_of(study.groups[0], study.corpus) is None
