"""How runs become groups, what groups are called, and which is a group's baseline."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmkit.cli.entry import experiment_config
from lmkit.comparison.corpora import told_apart
from lmkit.comparison.facts import studies
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError
from lmkit.runs.checksums import checked, checked_json, parse_json
from lmkit.runs.selection import select_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory, make_run) -> Path:
    """Two heads over seeds, triggers, a grid of one head, and a head from outside."""
    root = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        make_run(root, seed, 57.0 + 0.05 * seed)
        make_run(root, seed, 56.9 + 0.05 * seed, transform="gss")
    for c in (-2.0, 0.0):
        make_run(root, 1, transform="gss", changes={"transform.c": c})
    make_run(root, 1, 58.0, trigger="nt")
    make_run(root, 1, 56.0, mixture="softmaxes")
    make_run(root, 1, 56.5, mixture="softmaxes", trigger="nt")
    make_run(root, 1, 56.0, transform="outside")
    return root


def test_runs_that_differ_by_seed_alone_are_a_group_in_the_papers_order(runs, study_of):
    study, left_out = study_of(runs)
    assert [(group.label, len(group.runs)) for group in study.groups] == [
        ("Softmax (ET 200)", 3),
        ("Softmax (NT 5)", 1),
        ("GSS (c=−1.5)", 3),
        ("GSS (c=−2)", 1),
        ("GSS (c=0)", 1),
        ("Cube", 1),
        ("MoS (ET 200)", 1),
        ("MoS (NT 5)", 1),
    ]
    assert left_out == []
    assert (study.title, study.short, study.key) == ("Penn Treebank", "PTB", "penn")
    assert study.groups[0].spread("test_ppl").mean == pytest.approx(57.1)
    assert study.groups[0].representative.seed == 2


def test_the_baselines_groups_come_first(runs, study_of):
    study, _ = study_of(runs, "mos")
    assert [group.head.family for group in study.groups[:3]] == ["mos", "mos", "softmax"]


def test_threads_and_chunks_are_no_groups_and_a_seed_counts_once(tmp_path, make_run, study_of):
    run = make_run(tmp_path, 1)
    twin = tmp_path / "twin"
    shutil.copytree(run, twin)
    payload = parse_json((twin / "identity.json").read_bytes())
    settings = payload["settings"]
    settings["threads"], settings["head"]["chunk_mb"] = 8, 64
    (twin / "identity.json").write_bytes(checked_json(payload))
    study, left_out = study_of(tmp_path)
    assert [len(group.runs) for group in study.groups] == [1]
    assert [each.name for each in left_out] == ["twin"]
    assert run.name in left_out[0].reason


def test_heads_of_one_name_and_different_classes_are_different(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, transform="outside")
    make_run(tmp_path, 1, transform="outside", changes={"transform._target_": "mine.Cube"})
    study, _ = study_of(tmp_path, "cube")
    assert {group.label for group in study.groups} == {
        "Cube (heads.Cube)",
        "Cube (mine.Cube)",
    }


def test_runs_that_diverged_are_left_out(tmp_path, make_run, study_of):
    make_run(tmp_path, 1)
    diverged = make_run(tmp_path, 2)
    result = parse_json((diverged / "result.json").read_bytes())
    result["metrics"]["test_ppl"] = float("inf")
    (diverged / "result.json").write_bytes(checked_json(result))
    study, left_out = study_of(tmp_path)
    assert [len(group.runs) for group in study.groups] == [1]
    assert left_out == [(diverged.name, "result.json: test_ppl is inf: the run diverged")]


def test_each_corpus_has_its_study_the_whole_one_first(tmp_path, make_run):
    make_run(tmp_path, 1, train_tokens=200000)
    make_run(tmp_path, 1)
    per_corpus, _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    assert [(study.title, study.short, study.key) for study in per_corpus] == [
        ("Penn Treebank", "PTB", "penn"),
        ("Penn Treebank (first 200,000 training tokens)", "PTB", "penn_200000"),
    ]
    runs: list[dict[str, Any]] = [{"seed": 2, "train_tokens": 200000}, {"seed": 2}]
    runs += [{"seed": seed, "mixture": "softmaxes", "train_tokens": 200000} for seed in (1, 2)]
    firsts = []
    for run in runs:  # first is the one with the most groups of several seeds
        make_run(tmp_path, **run)
        selected = select_runs("runs", str(tmp_path)).runs
        firsts.append(studies(selected, "softmax", experiment_config, Files())[0][0].key)
    assert firsts == ["penn_200000", "penn", "penn", "penn_200000"]


def test_corpora_of_one_title_are_told_apart_by_what_differs(tmp_path, make_run):
    language = {"data.rank": 16, "data.context_strength": 2.0}
    for words, tokens in ((200, 20000), (200, 400000), (50, 20000)):
        make_run(tmp_path, 1, sizes=(words, 1000), train_tokens=tokens,
                 options=language | {"data.num_words": words, "data.root": "data"})  # fmt: skip
    for folder in tmp_path.iterdir():  # a language that is made has no files
        config = yaml.safe_load((folder / "config.yaml").read_text())
        del config["data"]["root"]
        (folder / "config.yaml").write_bytes(checked(yaml.safe_dump(config).encode()))
    per_corpus, _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    assert {study.title for study in per_corpus} == {
        "Penn Treebank, 200 words, 20,000 training tokens",
        "Penn Treebank, 200 words, 400,000 training tokens",
        "Penn Treebank, 50 words, 20,000 training tokens",
    }


def test_corpora_that_differ_in_nothing_known_are_told_apart_by_their_fingerprint():
    titles = told_apart(["toy", "toy", "PTB"], [{"rank": 8}, {"rank": 8}, {}], ["0a", "1b", "2c"])
    assert titles == ["toy, data 0a", "toy, data 1b", "PTB"]


def test_a_study_of_subwords_comes_after_that_of_words_and_says_so(tmp_path, make_run):
    subwords = {"data.tokenizer": "bpe", "data.vocab_size": 4000}
    make_run(tmp_path, 1, sizes=(4000, 111000), train_tokens=300000, options=subwords)
    make_run(tmp_path, 1, train_tokens=300000)
    per_corpus, _ = studies(
        select_runs("runs", str(tmp_path)).runs, "softmax", experiment_config, Files()
    )
    assert [study.key for study in per_corpus] == ["penn", "penn_bpe_4000"]


def test_the_baseline_is_the_group_that_differs_in_least(runs, study_of):
    study, _ = study_of(runs)
    by_label = {group.label: group for group in study.groups}
    softmax_et, softmax_nt = by_label["Softmax (ET 200)"], by_label["Softmax (NT 5)"]
    assert by_label["Cube"].against.baseline is softmax_et
    assert by_label["MoS (ET 200)"].against.baseline is softmax_et
    assert by_label["MoS (NT 5)"].against.baseline is softmax_nt
    assert softmax_nt.against is None


def test_a_figure_shows_one_group_of_each_head(runs, study_of):
    study, _ = study_of(runs)
    groups, note = study.shown(3)
    assert [group.label for group in groups] == ["Softmax", "GSS", "Cube"]
    assert note == (" Shown: Softmax (ET 200), GSS (c=−1.5). 5 further groups are not among them.")


def test_a_baseline_that_no_run_has_is_named_with_those_there_are(runs, study_of):
    with pytest.raises(UserError, match=r"did you mean softmax.*gss"):
        study_of(runs, "sofmax")


def test_finetunings_of_two_experiments_are_two_groups(tmp_path, make_run, study_of):
    for seed, experiment in ((1, "penn_mos"), (2, "penn_mos"), (1, "penn_mos_nt")):
        start = {"identity": f"{seed:012}", "weights_sha256": f"{seed:064}"}
        make_run(tmp_path, seed, 54.4, mixture="softmaxes", trigger="asgd",
                 name=f"{experiment}_finetune", options={"finetuned_from": start})  # fmt: skip
    make_run(tmp_path, 1)
    study, left_out = study_of(tmp_path)
    assert left_out == []
    labels = {group.label: len(group.runs) for group in study.groups}
    assert labels == {
        "Softmax": 1,
        "MoS (finetuned from penn_mos)": 2,
        "MoS (finetuned from penn_mos_nt)": 1,
    }


def test_an_option_at_its_default_splits_no_group(tmp_path, make_run, study_of):
    """One run is of a version that did not have the option yet."""
    make_run(tmp_path, 1)
    run = make_run(tmp_path, 2)
    payload = parse_json((run / "identity.json").read_bytes())
    del payload["settings"]["trunk"]["embedding_noise"]
    (run / "identity.json").write_bytes(checked_json(payload))
    study, _ = study_of(tmp_path)
    assert [(group.label, len(group.runs)) for group in study.groups] == [("Softmax", 2)]


def test_what_ended_a_run_tells_groups_apart(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, 57.0)
    make_run(tmp_path, 2, 57.0, options={"stopping._target_": "lmkit.training.NonMonotoneStop"})
    ended = make_run(tmp_path, 3, 90.0)
    result = parse_json((ended / "result.json").read_bytes())
    result["budget"] |= {"stopped": "callback", "epochs": 2}
    (ended / "result.json").write_bytes(checked_json(result))
    study, _ = study_of(tmp_path)
    assert {group.label for group in study.groups} == {
        "Softmax (Patience, not ended by a callback)",
        "Softmax (NonMonotoneStop, not ended by a callback)",
        "Softmax (Patience, ended by a callback)",
    }
    assert all(len(group.runs) == 1 for group in study.groups)


def test_names_of_groups_are_readable(tmp_path, make_run, study_of):
    make_run(tmp_path, 1, 57.0)
    adamw = {"_target_": "torch.optim.AdamW", "lr": 0.001, "betas": [0.9, 0.99]}
    make_run(tmp_path, 1, 58.0, options={"optimizer": adamw})
    study, _ = study_of(tmp_path)
    assert {group.label for group in study.groups} == {
        "Softmax (SGD, lr 20)", "Softmax (AdamW, lr 0.001)",
    }  # fmt: skip
