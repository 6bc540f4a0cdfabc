"""`lmkit compare`: what it prints, and what it writes."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from lmkit.presentation.styled import p_text
from lmkit.runs.checksums import checked_json
from tests.results.forging import change


@pytest.fixture
def runs(tmp_path, make_run) -> Path:
    """Runs of two heads, one that diverged and one that is unfinished among them.

    The ranks of softmax are all equal, as they usually are.
    """
    for transform, perplexities in (("gss", (56.1, 56.4, 56.2)), ("identity", (57.0, 57.2))):
        for seed, ppl in enumerate(perplexities):
            rank = 402 if transform == "identity" else 9000 + seed
            make_run(tmp_path / "runs", seed, ppl, rank, transform=transform)
    make_run(tmp_path / "runs", 8, float("inf"), transform="gss")
    make_run(tmp_path / "runs", 7, 300.0, transform="gss")
    (make_run(tmp_path / "runs", 9) / "result.json").unlink()
    return tmp_path


def test_the_command_prints_and_writes(lmkit, runs, capsys):
    groups = ("a=runs head:gss", "b=runs head:softmax")
    lmkit("compare", *groups, "out=c.json")
    printed, warned = capsys.readouterr()
    assert warned == ""  # by a library either
    of_runs = ("it has not finished", "it diverged", "its test perplexity is more than twice")
    for said in (*of_runs, "a: 3 runs: penn_small-", "sd of a"):
        assert said in printed
    content = json.loads((runs / "c.json").read_text())
    of_test = {name: values["test perplexity"] for name, values in content.items()}
    assert (of_test["runs of a"], of_test["paired seeds"]) == (3, 2)
    assert of_test["paired difference"] == pytest.approx((56.1 + 56.4 - 57.0 - 57.2) / 2)
    assert of_test["mean of a"] == pytest.approx((56.1 + 56.4 + 56.2) / 3)
    of_rank = {name: values["Press rank, 10,000 contexts"] for name, values in content.items()}
    assert (of_rank["mean of a"], of_rank["sd of b"]) == (9001, 0)
    assert of_rank["low"] == pytest.approx(8599 - 4.302653 / 3**0.5)  # t of 2 degrees of freedom
    lmkit("compare", *groups, "out=c.csv")
    rows = {row[""]: row for row in csv.DictReader((runs / "c.csv").open())}
    assert float(rows["test perplexity"]["mean of a"]) == of_test["mean of a"]


def test_ranks_compare_at_the_largest_number_of_contexts(lmkit, tmp_path, make_run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = {"schema_version": 1, "kind": "rank", "split": "test", "checkpoint": "best"}
    more |= {"spectrum": {"num_contexts": 4000, "press_rank": 398, "effective_rank": {}}}
    for place, seed in (("a", 1), ("b", 2)):
        run = make_run(tmp_path / place, seed)
        (run / "analysis/rank_test_log_probs_4000.json").write_bytes(checked_json(more))
    lmkit("compare", "a=a", "b=b", "out=c.json")
    (ranks,) = (of for of in json.loads(Path("c.json").read_text())["p_welch"] if "rank" in of)
    assert ranks == "Press rank, 10,000 contexts"


def test_whether_a_run_failed_the_other_set_tells_too(lmkit, tmp_path, make_run):
    for seed, (gss, softmax) in enumerate(((56.0, 57.0), (200.0, 57.2))):
        make_run(tmp_path / "runs", seed, gss, transform="gss")
        make_run(tmp_path / "runs", seed, softmax)
    printed = lmkit("compare", "a=runs head:gss", "b=runs head:softmax")
    assert "its test perplexity is more than twice the median of its peers" in printed
    assert "a: 1 run: " in printed
    for seed in range(3, 6):  # however many the other set has
        make_run(tmp_path / "good", seed, 56.0)
        make_run(tmp_path / "bad", seed, 130.0, options={"trunk.output_dropout": 0.9})
    make_run(tmp_path / "good", 6, 56.0)
    assert "b: 3 runs: " in lmkit("compare", "a=good", "b=bad")


def test_a_copy_of_a_run_is_no_further_seed(lmkit, runs):
    for run in [*(runs / "runs").glob("penn_small-*")]:
        shutil.copytree(run, runs / "copies" / run.name)
    printed = lmkit(
        "compare", "a=[runs head:gss, copies head:gss]", "b=runs head:softmax", "out=c.json"
    )
    assert printed.count(": the head and seed of penn_small-") == 4  # and of one that failed
    assert "a: 3 runs" in printed
    assert json.loads((runs / "c.json").read_text())["runs of a"]["test perplexity"] == 3


def test_runs_of_several_groups_are_named(lmkit, runs, make_run):
    make_run(runs / "runs", 1, 56.0, 9100, transform="gss", options={"head.transform.k": 2.0})
    printed = lmkit("compare", "a=runs head:gss", "b=runs head:softmax")
    assert "a holds 2 groups, tested as if they were one: GSS (k=2), GSS (k=2.5)" in printed
    assert "b holds" not in printed


def test_options_that_differ_are_told(lmkit, tmp_path, make_run):
    """By size; one that a later lmkit has added is at its default in earlier runs."""
    for rate in (5, 10, 20):
        run = make_run(tmp_path / "a", 1, options={"optimizer.lr": rate})
        change(run, "identity.json", lambda c: c["settings"]["trunk"].pop("embedding_noise"))
        change(run, "identity.json", lambda c: c["settings"].update(device_kind="cuda"))
        change(run, "result.json", lambda c: c["provenance"].update(code_sha256="ab"))
    make_run(tmp_path / "b", 2, options={"optimizer.lr": 10, "trunk.embedding_noise": 0.1})
    printed = lmkit("compare", "a=a", "b=b")
    assert "trunk.embedding_noise: a 0; b 0.1" in printed
    assert "their code differs" in printed
    assert "optimizer.lr: a 5, 10, 20; b 10" in printed
    assert "device_kind: a cuda; b cpu" in printed


def test_sets_whose_options_are_of_different_classes_compare(lmkit, runs, make_run):
    make_run(runs / "runs", 1, 56.0, trigger="nt", name="by_loss", trunk="Transformer-XL")
    printed = lmkit("compare", "a=runs name:by_loss", "b=runs head:softmax name:penn_small")
    (told,) = (line for line in printed.splitlines() if "trigger" in line)
    assert told.strip() == "trigger: a NonMonotone; b AtEpoch"
    assert "trunk: a Transformer-XL; b AWD-LSTM" in printed


def test_a_damaged_configuration_is_named_and_no_difference(lmkit, tmp_path, make_run):
    _, run, *_ = [
        make_run(tmp_path / place, seed, 56.0, train_tokens=6000)
        for place, seed in (("a", 1), ("a", 2), ("b", 3), ("b", 4))
    ]
    with (run / "config.yaml").open("a") as file:
        file.write("#")
    printed = lmkit("compare", "a=a", "b=b")
    assert f"left out: {run.name}, in part: config.yaml is damaged" in printed
    assert "train_tokens" not in printed


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a=runs head:gss", "b=runs"), "both hold penn_small-"),
        (("a=runs head:gss", "b=runs head:softmax", "out=c.txt"), "out=c.txt must be"),
        (("a=nowhere", "b=runs"), "a=nowhere selects no run"),
        (("a=runs seed:99", "b=runs"), "none of the runs of runs"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_what_is_wrong_is_one_line(refused, arguments, error):
    assert error in refused("compare", *arguments)


def test_what_single_runs_have_no_value_for_is_null_in_json(lmkit, tmp_path, make_run):
    for transform, ppl in (("gss", 56.0), ("identity", 57.0)):
        make_run(tmp_path / "runs", 1, ppl, transform=transform)
    lmkit("compare", "a=runs head:gss", "b=runs head:softmax", "out=c.json")
    text = (tmp_path / "c.json").read_text()
    assert "NaN" not in text  # which is no JSON
    assert json.loads(text)["sd of a"]["test perplexity"] is None


def test_small_values_of_p_are_not_rounded_to_0(lmkit, runs):
    printed = lmkit("compare", "a=runs head:gss", "b=runs head:softmax", "out=c.json")
    content = json.loads((runs / "c.json").read_text())
    of_p = [name for name in content if name.removeprefix("paired ").startswith("p")]
    assert of_p
    for name in of_p:
        assert p_text(content[name]["Press rank, 10,000 contexts"]) in printed
