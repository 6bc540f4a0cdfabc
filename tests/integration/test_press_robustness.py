"""Robustness of Press's rank, and the gradient bottleneck, on a trained run, by their commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from lmkit.analyses.robustness_report import comparison, figure, tables
from lmkit.cli import gradient_bottleneck, press_robustness
from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.evaluation.load import load_run
from lmkit.evaluation.press_robustness import (
    Noisy,
    Robustness,
    RobustnessOptions,
    first_rows,
    study_matrix,
)
from lmkit.presentation.published import published_robustness
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.spectra.ranks import effective_rank, press_rank, press_tolerance
from lmkit.spectra.robustness import add_noise, keep_top
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.callbacks.gradient_bottleneck import logit_gradients, model_bottleneck
from lmkit.training.run import run

SMALL = [
    "threads=1",
    "logger.mode=disabled",
    "callbacks.progress_bar=false",
    "callbacks.spectrum.every=0",
    "data.train_tokens=8000",
    "data.valid_tokens=600",
    "data.test_tokens=600",
    "trunk.emb_dim=12",
    "trunk.out_dim=12",
    "trunk.hidden_dim=12",
    "head/mixture=softmaxes",
    "head.mixture.num_experts=3",
    "head/transform=gss",
    "switch_epoch=1",
]
MEASURED = ["callbacks.gradient_bottleneck.every=2", "callbacks.gradient_bottleneck.contexts=150"]
OPTIONS = RobustnessOptions("test", 300, "svd", 2, [1e-22, 1e-26, 1e-30], 5)


def trained(runs_dir: Path, *overrides: str) -> RunFolder:
    return run(plain_config(compose("train", [*SMALL, f"runs_dir={runs_dir}", *overrides])))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> RunFolder:
    """A run that logs the gradient bottleneck of every other epoch."""
    return trained(tmp_path_factory.mktemp("runs"), "max_epochs=4", *MEASURED)


def command(main, monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["command", *arguments])
    main()


def log_probs(num_rows: int, num_columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.log_softmax(torch.randn(num_rows, num_columns, generator=generator), 1)


def test_ranks_of_the_study_are_those_of_full_decompositions():
    rows = log_probs(300, 200)
    steps = []
    found = study_matrix(rows, OPTIONS, steps.append)
    matrix = keep_top(rows, 10)
    tolerance = press_tolerance(300, 200, torch.float64)
    assert (found.true_rank, found.tolerance) == (10, tolerance)
    assert found.round_trip_ranks[0] == 10
    assert len(found.round_trip_ranks) == 3
    assert all(0 < error < 1e-13 for error in found.round_trip_errors)
    for index, noisy in enumerate(found.noise):
        values = torch.linalg.svdvals(add_noise(matrix, noisy.c, 5 + index))
        assert noisy.press_rank == pytest.approx(press_rank(values, tolerance), abs=2)
        assert noisy.press_rank == pytest.approx(noisy.predicted_rank, abs=3)
        expected = {e: effective_rank(values, float(e)) for e in noisy.effective_rank}
        assert noisy.effective_rank == expected
    assert [noisy.press_rank > 10 for noisy in found.noise] == [True, True, False]
    assert len(steps) == 2 + 3


def test_a_matrix_of_lower_rank_is_refused():
    low = log_probs(300, 5) @ log_probs(5, 200)
    with pytest.raises(UserError, match="fewer than 10 singular values above its rounding"):
        study_matrix(low, OPTIONS, lambda name: None)


def test_published_ranks_stand_beside_measured_ones_of_the_same_size():
    noise = [Noisy(1e-20, 9900, 9898.7, {"0.001": 7, "0.0001": 10, "1e-05": None})]
    found = Robustness(10_000, 10_000, 10, 1.6e-14, [1.0] * 10, [10, 10], [1e-15], noise)
    assert comparison(found) == published_robustness()
    _, table = tables(found, "run")
    cells = [list(column.cells) for column in table.columns]
    assert cells == [
        ["1e-20", "published"], ["9,900", ""], ["9,899", ""], ["9,899", ""],
        ["7", "7"], ["10", "10"], ["more than 10", "10"],
    ]
    assert "Press rank, published" in legend(figure(found, OPTIONS, "run"))
    smaller = found._replace(num_contexts=500)
    assert comparison(smaller) is None
    assert "Press rank, published" not in legend(figure(smaller, OPTIONS, "run"))


def legend(drawn: Figure) -> list[str]:
    return [text.get_text() for text in drawn.axes[1].get_legend().get_texts()]


def test_the_robustness_command_leaves_table_file_and_figure(folder, monkeypatch, capsys):
    options = ["contexts=300", "round_trips=2", "noise=[1e-22,1e-30]", "seed=5"]
    command(press_robustness.main, monkeypatch, f"run={folder.path}", *options)
    assert "Press rank" in capsys.readouterr().out
    content = json.loads((folder.analysis / "press_robustness.json").read_text())
    assert content["kind"] == "press_robustness"
    assert (content["checkpoint"], content["averaged"]) == ("best", True)
    assert content["published"] is None
    loaded = load_run(folder.path, "best", None, None)
    rows = first_rows(loaded.model, loaded.data.eval_windows("test"), 300)
    chosen = OPTIONS._replace(factorisation="qr", noise=[1e-22, 1e-30])
    expected = study_matrix(rows, chosen, lambda name: None)
    assert content["round_trip_ranks"] == expected.round_trip_ranks
    assert content["noise"] == [noisy._asdict() for noisy in expected.noise]
    assert (folder.analysis / "press_robustness.svg").read_text().startswith("<?xml")


def test_without_round_trips_the_figure_is_of_noise_alone(folder, monkeypatch, capsys):
    (folder.analysis / "press_robustness.svg").unlink(missing_ok=True)
    options = ["contexts=300", "round_trips=0", "noise=[1e-22]"]
    command(press_robustness.main, monkeypatch, f"run={folder.path}", *options)
    assert "press_robustness.svg" in capsys.readouterr().out
    figure = (folder.analysis / "press_robustness.svg").read_text()
    assert figure.startswith("<?xml")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("contexts=10000", "contexts must be more than 10 and at most 599"),
        ("noise=[]", "noise must be a list"),
        ("noise=[0]", "noise must be greater than 0"),
        ("factorisation=lu", "factorisation must be one of svd, qr"),
        ("noise=[1e-3]", "is not resolved"),
    ],
)
def test_the_robustness_command_refuses_what_it_cannot_do(folder, monkeypatch, option, message):
    options = ["contexts=300", "round_trips=0", option]
    with pytest.raises(SystemExit, match=message):
        command(press_robustness.main, monkeypatch, f"run={folder.path}", *options)


def test_logit_gradients_are_those_of_the_loss(folder):
    """Through the chain rule they must give the gradients of decoder weight and bias."""
    loaded = load_run(folder.path, "best", None, None)
    model, head = loaded.model.eval(), loaded.model.head
    window = next(iter(loaded.data.eval_windows("valid")))
    with torch.no_grad():
        state = model.trunk.initial_state(window.inputs_TB.shape[1])
        hidden = model.trunk(window.inputs_TB, state).dropped_TBD
        contexts = head.mixture(hidden).context_NKE
        gradients = logit_gradients(head, hidden, window.targets_TB)
    nll = head.log_probs(hidden).gather(1, window.targets_TB.reshape(-1, 1)).sum().neg()
    by_weight, by_bias = torch.autograd.grad(nll, [head.decoder_weight, head.decoder_bias])
    torch.testing.assert_close(gradients.sum((0, 1)), by_bias, rtol=1e-4, atol=1e-4)
    found = torch.einsum("nkv,nke->ve", gradients, contexts)
    torch.testing.assert_close(found, by_weight, rtol=1e-4, atol=1e-4)


def test_the_share_is_that_of_the_projection(folder):
    loaded = load_run(folder.path, "best", None, None)
    model = loaded.model.eval()
    found = model_bottleneck(model, loaded.data.eval_windows("valid"), 100)
    (hidden, window), *_ = model.outputs(loaded.data.eval_windows("valid"))
    with torch.no_grad():
        flat = hidden.flatten(0, 1)[:100].unsqueeze(0)
        gradients = logit_gradients(
            model.head, flat, window.targets_TB.flatten()[:100].unsqueeze(0)
        )
    gradients = gradients.flatten(0, 1).double()
    weight = model.head.decoder_weight.detach().double()
    projection = weight @ torch.linalg.pinv(weight)
    assert found.share == pytest.approx(float((gradients @ projection).norm() / gradients.norm()))
    shares = (gradients @ projection).norm(dim=1) / gradients.norm(dim=1)
    assert found.mean_share == pytest.approx(float(shares.mean()))
    assert (found.num_components, found.decoder_rank, found.num_words) == (3, 12, 200)
    assert found.low_share < found.mean_share < found.high_share <= 1


def test_epochs_are_logged_and_training_is_undisturbed(folder, tmp_path):
    rows = [row for row in MetricsFile(folder.metrics).read() if "valid/ppl" in row]
    name = "gradient_bottleneck/valid_share"
    assert [name in row for row in rows] == [False, True, False, True]
    last = load_run(folder.path, "last", None, None)
    found = model_bottleneck(last.model, last.data.eval_windows("valid"), 150)
    assert rows[-1][name] == pytest.approx(found.share, rel=1e-6)
    # resumed after the second epoch, and measured in no other
    trained(tmp_path, "max_epochs=2", *MEASURED)
    resumed = trained(tmp_path, "max_epochs=4", "callbacks.gradient_bottleneck.contexts=150")
    measured = [r for r in MetricsFile(resumed.metrics).read() if name in r]
    assert [row["epoch"] for row in measured] == [2]
    assert measured[0][name] == rows[1][name]
    first, second = load_checkpoint(folder.last), load_checkpoint(resumed.last)
    for key, weight in first["state_dict"].items():
        assert torch.equal(weight, second["state_dict"][key]), key
    assert torch.equal(first["lmkit_progress"]["cpu_rng"], second["lmkit_progress"]["cpu_rng"])


def test_the_bottleneck_command_measures_every_checkpoint(folder, monkeypatch, capsys):
    options = ["split=test", "contexts=null"]
    command(gradient_bottleneck.main, monkeypatch, f"run={folder.path}", *options)
    assert "share of all gradients" in capsys.readouterr().out
    content = json.loads((folder.analysis / "gradient_bottleneck.json").read_text())
    assert (content["kind"], content["split"]) == ("gradient_bottleneck", "test")
    epochs = {found["checkpoint"]: found["epoch"] for found in content["checkpoints"]}
    assert epochs["best"] == folder.read_result().metrics["best_epoch"]
    assert epochs.get("last", 4) == 4
    assert content["num_contexts"] == 599
    assert [row["epoch"] for row in content["epochs"]] == [2, 4]
    loaded = load_run(folder.path, "best", None, None)
    found = model_bottleneck(loaded.model, loaded.data.eval_windows("test"), 599)
    assert content["share"] == pytest.approx(found.share, rel=1e-6)


def test_the_bottleneck_command_names_what_is_wrong(folder, monkeypatch, tmp_path):
    for arguments, message in (
        ((f"run={tmp_path}",), "has no checkpoint"),
        ((f"run={tmp_path / 'none'}",), "is no folder"),
        ((f"run={folder.path}", "contexts=5000"), "contexts=5000 is more than the"),
    ):
        with pytest.raises(SystemExit, match=message):
            command(gradient_bottleneck.main, monkeypatch, *arguments)
