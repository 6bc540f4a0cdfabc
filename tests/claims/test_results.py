"""Finished runs in Python and as a table: `lmkit.load`, `lmkit.results`, `lmkit runs`."""

import csv
import math
import os
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hydra import compose, initialize_config_dir

import lmkit as package
from lmkit.cli.command_line import CONFIGS
from lmkit.cli.runs import show
from lmkit.data.toy import ToyLanguage
from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from tests.tiny import TINY


@pytest.mark.usefixtures("lmkit")
def test_a_training_gives_back_what_it_changed_in_its_process():
    generators = (random.random, np.random.random, lambda: float(torch.rand(())))
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = [draw() for draw in generators]
    random.setstate(before[0]), np.random.set_state(before[1]), torch.set_rng_state(before[2])
    torch.use_deterministic_algorithms(True, warn_only=True)
    package.train([*TINY, "seed=7"])
    assert [draw() for draw in generators] == expected
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    assert "PL_GLOBAL_SEED" not in os.environ


@pytest.mark.usefixtures("lmkit")
def test_one_thread_of_a_process_trains_at_a_time_and_in_float32():
    """Both would draw from the same generators, and neither would have the numbers of its seed."""

    def train_another(*_: object) -> None:
        with ThreadPoolExecutor() as pool, pytest.raises(UserError, match="train in processes"):
            pool.submit(package.train, [*TINY, "seed=8"]).result()
        told.append(True)

    told: list[bool] = []
    package.train([*TINY, "seed=7"], train_another)
    assert told == [True, True]
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(UserError, match=r"set_default_dtype\(torch\.float64\): runs need"):
            package.train([*TINY, "seed=9"])
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_data_frame_can_be_had_whatever_was_imported_before(trained: Path):
    code = "import lmkit; from lmkit.results.bootstrap import over_texts; import sys; "
    code += "print(len(lmkit.results(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, trained], capture_output=True, text=True)
    assert done.stdout == "3\n", done.stderr


def test_a_loaded_run_has_its_configuration_words_and_rows(trained: Path):
    path = next(trained.glob("toy-*/"))
    run = package.load(path)
    metrics = RunFolder(path).read_result().metrics
    assert not run.model.training
    assert run.config["data"]["num_words"] == len(run.vocabulary) == 40
    assert (
        min(row["valid/ppl"] for row in run.metrics if "valid/ppl" in row) == metrics["valid_ppl"]
    )


def test_a_loaded_run_reads_a_text_as_its_corpus_does(trained: Path):
    """Against one pass of trunk and head over the corpus's own indices, after an end of line."""
    run = package.load(next(trained.glob("toy-*/")))
    data = {name: value for name, value in run.config["data"].items() if name != "_target_"}
    words = ToyLanguage(**data).load().test.tolist()
    inputs_T1 = torch.tensor([run.vocabulary.index("<eos>"), *words[:-1]]).unsqueeze(1)
    with torch.no_grad():
        output = run.model.trunk(inputs_T1, run.model.trunk.initial_state(1))
        hidden_T1D = run.model.head_input(output)
        rows = run.model.head.log_probs(hidden_T1D)
    nll = -rows[range(300), words]

    written = " ".join(run.vocabulary[word] for word in words).replace(" <eos>", "\n")
    assert "\n" in written
    for text in (written, written.replace("\n", "\r\n"), words, [run.vocabulary[w] for w in words]):
        assert run.ids(text) == words
        assert torch.allclose(run.log_probs(text), rows, atol=1e-5)
        assert torch.allclose(run.nll(text), nll, atol=1e-5)
        assert torch.allclose(run.contexts(text), hidden_T1D[:, 0], atol=1e-6)
        assert run.perplexity(text) == pytest.approx(math.exp(nll.double().mean()), rel=1e-6)
    # the corpus's own figure leaves out the first word
    test_ppl = RunFolder(run.folder.path).read_result().metrics["test_ppl"]
    assert math.exp(run.nll(written)[1:].double().mean()) == pytest.approx(test_ppl, rel=0.01)
    values = torch.linalg.svdvals(rows.double())
    tolerance = 0.5 * (300 + 40 + 1) ** 0.5 * torch.finfo(torch.float32).eps
    assert run.rank(written).press_rank == int((values > tolerance * values[0]).sum())


def test_a_loaded_run_is_shown_in_one_line_and_the_package_by_what_it_offers(trained: Path):
    path = next(trained.glob("toy-*/"))
    shown = repr(package.load(path))
    assert shown.startswith(f"<TrainedRun {path}: ")
    assert "40 words, test perplexity" in shown
    assert "'w1'" not in shown  # nor any other word of its vocabulary
    public = [name for name in dir(package) if not name.startswith("_")]
    assert public == sorted(package.__all__)
    assert {"load", "results"} <= set(public)


def test_training_in_python_returns_the_finished_run(lmkit, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = package.train([*TINY, "head/transform=gss", "seed=7"])
    assert run.result.metrics["test_ppl"] > 1
    assert run.folder.path.name.startswith("toy_gss-")
    assert run.log_probs("w1 w2").shape == (2, 40)
    assert package.load(run.folder.path.name).result == run.result
    lmkit("train", *TINY, "head/transform=gss", "seed=7")
    assert f"already finished: runs/{run.folder.path.name}" in capsys.readouterr().out
    assert run.config["command"].startswith("lmkit train threads=1 ")
    for wrong, message in (
        (["multirun_sweeps=smoke"], "trains one run"),
        (["--multirun", "seed=1,2"], "trains one run"),
        (["sweep.sample=3"], "trains one run"),
        (["seed=1,2"], "Ambiguous value for argument 'seed=1,2'"),
        ("seed=1", r"overrides must be a list such as \['max_epochs=1', 'seed=1'\]"),
        ({"seed": 1}, "overrides must be a list such as"),
        ([1], "each of overrides must be a text such as 'seed=1', not 1"),
        (["--config-dir", "nowhere"], "--config-dir: nowhere is no folder"),
        (["--config-dir=.", "experiment=null"], "experiment=null does not exist; there are "),
        ([*TINY, "hydra/launcher=slurm"], "hydra/launcher=slurm: lmkit.train trains one run"),
        ([*TINY, "keep=none"], "keep=none: lmkit.train returns the best weights"),
    ):
        with pytest.raises(UserError, match=message):
            package.train(wrong)
    in_an_application = initialize_config_dir(str(CONFIGS), version_base="1.3")  # of Hydra's
    with in_an_application:
        with pytest.raises(UserError, match=r"optimizer\.lr must be greater"):
            package.train([*TINY, "optimizer.lr=0"])
        assert compose("train").seed == 141  # the application goes on


def test_what_a_loaded_run_cannot_read_is_named(trained: Path):
    run = package.load(next(trained.glob("toy-*/")))
    for wrong, message in (
        ("w1 w99", "does not know the word 'w99'"),
        ([3, 40], "has 40 words, and none is 40"),
        ([3, -1], "has 40 words, and none is -1"),
        (" \n", "has no words"),
        ([], "has no words"),
    ):
        with pytest.raises(UserError, match=message):
            run.log_probs(wrong)
    for wrong, message in (
        ("nowhere", "run=nowhere selects no run: it is not a folder"),
        (None, "run must be the folder or the name of a run, but is None"),
        (trained, r"selects 3 runs \(toy.*\): give one"),
    ):
        with pytest.raises(UserError, match=message):
            package.load(wrong)
    with pytest.raises(UserError, match="columns must be a list such as"):
        package.results(str(trained), columns="seed")


def test_results_are_one_row_a_run(trained: Path, lmkit):
    rows = package.results(trained)
    assert sorted(zip(rows["head"], rows["seed"], strict=True)) == [
        ("GSS", 1), ("Softmax", 1), ("Softmax", 2),
    ]  # fmt: skip
    written = list(csv.DictReader(lmkit("runs", str(trained), "csv=true").splitlines()))
    assert [float(row["test_ppl"]) for row in written] == list(rows["test_ppl"])
    assert [row["optimizer.lr"] for row in written] == ["5", "5", "5"]
    assert all(float(row["rank.press@60"]) > 0 for row in written)
    assert {row["code.has_changed"] for row in written} == {"False"}


@pytest.mark.usefixtures("undrawn")
def test_code_that_has_changed_since_is_told(trained: Path, lmkit, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lmkit.runs.folder.code_sha256", lambda: "of later code")
    lmkit("runs", str(trained))
    assert "3 runs came from code that has changed since" in capsys.readouterr().err
    lmkit("report", f"runs={trained}", "out=page")
    page = (tmp_path / "page/index.html").read_text("utf-8")
    assert "3 runs came from code that has changed since" in page


def test_status_tells_which_code_has_changed_since(three, printed, tmp_path, monkeypatch):
    points = [Point(run.path.name, [], run.path.name, "toy", 2, None) for run in three]
    SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 0, points)).save()
    assert "code" not in printed("sweep", "status", "mine")
    monkeypatch.setattr("lmkit.sweeps.status.code_sha256", lambda: "of later code")
    assert "3 come from code that has changed since" in printed("sweep", "status", "mine")


@pytest.fixture
def unfinished(three: list[RunFolder]) -> list[RunFolder]:
    """Runs of which the last, of GSS, has not finished."""
    three[2].result.unlink()
    return three


def listed(table: str) -> list[list[str]]:
    """The rows of a table."""
    rows = (line.split("│")[1:-1] for line in table.splitlines() if "│" in line)
    return [[cell.strip() for cell in row] for row in rows]


@pytest.mark.usefixtures("unfinished")
def test_runs_are_listed_finished_or_not_sorted_and_filtered(lmkit):
    # of the folder runs, unless told otherwise
    first, second, third = listed(lmkit("runs", "sort=-test_ppl"))
    assert [row[1] for row in (first, second, third)] == ["finished", "finished", "unfinished"]
    assert float(first[5]) >= float(second[5])
    assert third[0].startswith("toy_gss-")
    assert third[2:4] == ["GSS", "2"]
    rising = listed(lmkit("runs", "runs", "sort=test_ppl"))
    assert [row[0] for row in rising] == [second[0], first[0], third[0]]
    shown = lmkit("runs", "runs state:unfinished", "columns=seed,optimizer.lr")
    assert listed(shown) == [[third[0], "1", "5"]]
    for column in ("see[dx]", "[se]eed"):
        shown = lmkit("runs", "runs head:softmax seed:2", f"columns={column}")
        assert [row[1:] for row in listed(shown)] == [["2"]]


def test_whole_numbers_beside_others_stay_whole(capsys):
    show(
        pd.DataFrame({"parameters": [24_221_600], "ppl": [57.123456]}, ["a run"]),
        ["parameters", "ppl"],
    )
    assert "24221600" in capsys.readouterr().out


def test_a_running_run_and_a_damaged_one_are_told(unfinished, lmkit, capsys):
    damaged, _, running = unfinished
    damaged.identity.write_text("{")
    with RunLock(running.lock):
        lmkit("runs", "runs", "columns=state")
    captured = capsys.readouterr()
    assert f"damaged: {damaged.path.name}: " in captured.err
    assert re.search(rf"{running.path.name} *│ running", captured.out)
    assert re.search(rf"{damaged.path.name} *│ damaged", captured.out)


def test_a_list_of_runs_is_one_word_as_for_the_report(three, printed):
    first, second, _ = (str(run.path) for run in three)
    shown = printed("runs", f"[{first},'runs/*{second[-12:]} seed:2']")
    assert shown.startswith("2 runs")
    assert "2 finished runs: " in printed("clean", f"runs=[{first},{second}]")


def test_runs_sort_by_an_option_that_is_a_number_in_some_and_a_text_in_others(
    tmp_path, make_run, lmkit
):
    for seed, precision in enumerate(("bf16-mixed", 32)):
        make_run(tmp_path / "runs", seed, options={"trainer.precision": precision})
    shown = lmkit("runs", "sort=trainer.precision", "columns=trainer.precision")
    assert [row[1] for row in listed(shown)] == ["32", "bf16-mixed"]


def test_the_name_that_each_row_has_is_a_column_to_choose_and_to_sort_by(tmp_path, make_run, lmkit):
    names = sorted(make_run(tmp_path / "runs", seed).name for seed in (1, 2))
    shown = lmkit("runs", "columns=name,seed", "sort=-name")
    assert [row[0] for row in listed(shown)] == names[::-1]
    assert sorted(lmkit("runs", "columns=name", "csv=true").split()) == ["name", *names]


def test_the_best_of_heads_needs_a_finished_run(tmp_path, make_run, refused):
    (make_run(tmp_path / "runs") / "result.json").unlink()
    message = refused("runs", str(tmp_path / "runs"), "best=head")
    assert message == "best=head: no run has finished with finite perplexities"


def test_without_a_word_the_runs_are_those_of_runs_dir(lmkit, tmp_path, make_run):
    name = make_run(tmp_path / "others").name
    assert name in lmkit("runs", f"runs_dir={tmp_path}/others")


def test_the_line_of_a_run_is_that_of_any_keep(tmp_path):
    run = package.train([*TINY, f"runs_dir={tmp_path}", "keep=all"])
    assert "keep=" not in run.folder.read_config()["command"]


def test_python_takes_the_trunk_that_stands_for_an_experiment():
    with pytest.raises(UserError, match=r"^trunk.of is missing"):
        package.train(["trunk=fixed"])
