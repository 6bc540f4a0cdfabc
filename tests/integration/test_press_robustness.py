"""Press's rank under rounding and noise: the study, and its command on a trained run."""

from __future__ import annotations

import json

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.experiment.load import load_run
from lmkit.measures.rank_robustness import (
    RobustnessOptions,
    first_rows,
    study_matrix,
)
from lmkit.spectra.measures import EPSILONS
from lmkit.spectra.ranks import effective_rank, press_rank, press_tolerance
from lmkit.spectra.robustness import add_noise, keep_top

OPTIONS = RobustnessOptions("svd", 2, [1e-22, 1e-26, 1e-30], 5)


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


@pytest.mark.parametrize("shape", [(120, 120), (200, 120)])
def test_the_largest_published_noises_are_measured(shape):
    rows = log_probs(*shape)
    options = OPTIONS._replace(round_trips=0, noise=[1e-2, 1e-7, 1e-12])
    found = study_matrix(rows, options, lambda name: None)
    matrix = keep_top(rows, 10)
    for index, noisy in enumerate(found.noise):
        values = torch.linalg.svdvals(add_noise(matrix, noisy.c, 5 + index))
        assert noisy.press_rank == press_rank(values, found.tolerance) == 120
        assert noisy.predicted_rank == pytest.approx(120, abs=0.01)
        assert list(noisy.effective_rank.values()) == [
            rank if (rank := effective_rank(values, e)) <= 10 else None for e in EPSILONS
        ]


def test_a_matrix_of_lower_rank_is_refused():
    low = log_probs(300, 5) @ log_probs(5, 200)
    with pytest.raises(UserError, match="fewer than 10 singular values above its rounding"):
        study_matrix(low, OPTIONS, lambda name: None)


def test_the_command_leaves_table_file_and_figure(tiny_run, lmkit, capsys):
    options = ("contexts=300", "round_trips=2", "noise=[1e-2,1e-22,1e-30]", "seed=5")
    lmkit("press_robustness", f"run={tiny_run}", *options)
    figure = tiny_run / "analysis" / "press_robustness.svg"
    shown = capsys.readouterr().out
    assert "Press rank" in shown
    assert str(figure) in shown
    assert figure.read_text().startswith("<?xml")
    content = json.loads((tiny_run / "analysis" / "press_robustness.json").read_text())
    assert content["kind"] == "press_robustness"
    assert (content["checkpoint"], content["averaged"]) == ("best", True)
    loaded = load_run(tiny_run, "best", None, None)
    rows = first_rows(loaded.model, loaded.data.eval_batches("test"), 300)
    chosen = OPTIONS._replace(factorisation="qr", noise=[1e-2, 1e-22, 1e-30])
    expected = study_matrix(rows, chosen, lambda name: None)
    assert content["round_trip_ranks"] == expected.round_trip_ranks
    assert content["press_ranks"] == [noisy.press_rank for noisy in expected.noise]
    ranks = [noisy.effective_rank["0.001"] for noisy in expected.noise]
    assert content["effective_ranks"]["0.001"] == ranks


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("contexts=10", "contexts must be a whole number of at least 11"),
        ("noise=[]", "noise must be a list"),
        ("noise=[0]", "noise must be greater than 0"),
        ("factorisation=lu", "factorisation must be one of svd, qr"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(tiny_run, lmkit, capsys, option, message):
    options = ("contexts=300", "round_trips=0", option)
    with pytest.raises(SystemExit):
        lmkit("press_robustness", f"run={tiny_run}", *options)
    assert message in capsys.readouterr().err
