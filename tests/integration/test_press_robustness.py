"""Press's rank under rounding and noise: the study, and its command on a trained run."""

import json

import pytest
import torch
from matplotlib.figure import Figure

from lmkit.analyses.base import StoredRecord
from lmkit.analyses.press_robustness import PressRobustness, RanksUnderNoise
from lmkit.errors.user_error import UserError
from lmkit.experiment.load import load_run
from lmkit.measures.rank_robustness import RobustnessOptions, study, study_matrix
from lmkit.spectra.measures import EPSILONS, effective_rank, press_rank, press_tolerance
from lmkit.spectra.robustness import add_noise, keep_top
from tests.live_bytes import largest_numel
from tests.spectra.test_robustness import log_probs

OPTIONS = RobustnessOptions("svd", 2, [1e-22, 1e-26, 1e-30], 5)


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
    for index, c in enumerate(OPTIONS.noise):
        values = torch.linalg.svdvals(add_noise(matrix, c, 5 + index))
        assert found.press_ranks[index] == pytest.approx(press_rank(values, tolerance), abs=2)
        assert found.press_ranks[index] == pytest.approx(found.predicted_ranks[index], abs=3)
        for e in EPSILONS:
            assert found.effective_ranks[f"{e:g}"][index] == effective_rank(values, e)
    assert [rank > 10 for rank in found.press_ranks] == [True, True, False]
    assert len(steps) == 2 + 3


def test_each_noise_has_a_seed_of_its_own(monkeypatch):
    seeds = []
    monkeypatch.setattr(
        "lmkit.measures.rank_robustness.add_noise",
        lambda matrix, c, seed: seeds.append(seed) or add_noise(matrix, c, seed),
    )
    study_matrix(log_probs(60, 40), OPTIONS, lambda name: None)
    assert seeds == [5, 6, 7]


@pytest.mark.parametrize("shape", [(120, 120), (200, 120)])
def test_the_largest_published_noises_are_measured(shape):
    rows = log_probs(*shape)
    options = OPTIONS._replace(round_trips=0, noise=[1e-2, 1e-7, 1e-12])
    found = study_matrix(rows, options, lambda name: None)
    matrix = keep_top(rows, 10)
    for index, c in enumerate(options.noise):
        values = torch.linalg.svdvals(add_noise(matrix, c, 5 + index))
        assert found.press_ranks[index] == press_rank(values, found.tolerance) == 120
        assert found.predicted_ranks[index] == pytest.approx(120, abs=0.01)
        assert [ranks[index] for ranks in found.effective_ranks.values()] == [
            rank if (rank := effective_rank(values, e)) <= 10 else None for e in EPSILONS
        ]


def test_no_rank_is_above_the_number_of_contexts_and_words():
    options = OPTIONS._replace(round_trips=0, noise=[1e-18, 1e-20, 1e-22])
    for seed in range(10):
        torch.manual_seed(seed)
        rows = torch.log_softmax(torch.randn(11, 11), 1)
        found = study_matrix(rows, options._replace(seed=seed), lambda name: None)
        assert max(found.press_ranks) <= 11


def test_a_matrix_of_lower_rank_is_refused():
    low = log_probs(300, 5) @ log_probs(5, 200)
    with pytest.raises(UserError, match="fewer than 10 singular values above its rounding"):
        study_matrix(low, OPTIONS, lambda name: None)


def test_the_command_leaves_table_file_and_figure(tiny_run, lmkit):
    options = ("contexts=300", "round_trips=2", "noise=[1e-2,1e-22,1e-30]", "seed=5")
    shown = lmkit("press_robustness", f"run={tiny_run}", *options)
    figure = tiny_run / "analysis" / "press_robustness.svg"
    assert "Press rank" in shown
    assert str(figure) in shown
    assert figure.read_text().startswith("<?xml")
    content = json.loads((tiny_run / "analysis" / "press_robustness.json").read_text())
    assert content["kind"] == "press_robustness"
    assert (content["checkpoint"], content["averaged"]) == ("best", True)
    loaded = load_run(tiny_run, "best", None, None)
    chosen = OPTIONS._replace(factorisation="qr", noise=[1e-2, 1e-22, 1e-30])
    windows = loaded.data.eval_batches("test")
    expected = study(loaded.model, windows, 300, chosen, lambda name: None)
    assert content.items() >= expected._asdict().items()


def test_the_figure_joins_noises_in_their_order():
    record = RanksUnderNoise(
        split="test",
        num_contexts=300,
        num_words=200,
        true_rank=10,
        tolerance=1e-5,
        factorisation="qr",
        seed=5,
        round_trip_ranks=[],
        round_trip_errors=[],
        noise=[1e-2, 1e-30, 1e-22],
        press_ranks=[200, 10, 40],
        predicted_ranks=[199.0, 10.0, 41.0],
        effective_ranks={},
    )
    axes = Figure().subplots()
    PressRobustness.draw(axes, [StoredRecord("MoS", record, {})])
    points, line, _ = axes.lines
    assert points.get_xydata().tolist() == [[1e-30, 10], [1e-22, 40], [1e-2, 200]]
    assert line.get_xydata().tolist() == [[1e-30, 10], [1e-22, 41], [1e-2, 199]]


def test_no_more_rows_of_log_p_are_made_than_are_studied(tiny_run):
    loaded = load_run(tiny_run, "best", None, None)
    model, windows = loaded.model, loaded.data.eval_batches("test")
    whole = next(iter(windows)).targets_TB.numel() * len(model.head.decoder_bias)
    options = OPTIONS._replace(round_trips=0, noise=[])
    assert largest_numel(lambda: study(model, windows, 20, options, print)) < whole
