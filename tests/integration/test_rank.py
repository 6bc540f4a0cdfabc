"""Spectrum and pairwise divergence of finished runs, by their commands."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lmkit.analyses.base import measured
from lmkit.analyses.divergence import Divergence
from lmkit.analyses.rank import Rank, Ranks
from lmkit.experiment.load import load_run
from lmkit.runs.folder import RunFolder
from tests.faults.comparison import runs_in
from tests.language_models import log_prob_matrix


def test_rank_of_all_runs_of_a_folder(tiny_runs, lmkit):
    shown = lmkit("rank", f"run={tiny_runs}", "contexts=300")
    assert len(runs_in(tiny_runs)) == 2
    for run in runs_in(tiny_runs):
        assert run.path.name in shown
        ((_, found),) = measured(run, Rank, "", {})
        stem = run.analysis / "rank_test_log_probs_300"
        assert stem.with_suffix(".svg").read_text().startswith("<?xml")
        loaded = load_run(run.path, "best", None, None)
        rows = log_prob_matrix(loaded.model, loaded.data.eval_batches("test"))[:300]
        expected = np.linalg.svd(rows.double().numpy(), compute_uv=False)
        values = found.arrays["singular_values"]
        assert np.abs(values - expected).max() < 1e-6 * expected[0]
        assert isinstance(found.record, Ranks)
        tolerance = 0.5 * (300 + rows.shape[1] + 1) ** 0.5 * np.finfo(np.float32).eps
        assert found.record.press_rank == (expected > tolerance * expected[0]).sum()
        inputs = loaded.model.head_inputs(loaded.data.eval_batches("test"))
        hidden_ND = torch.cat([hidden.flatten(0, 1) for hidden, _ in inputs])[:300].double()
        units_ND = hidden_ND / hidden_ND.norm(dim=1, keepdim=True)
        pairs_NN = (units_ND @ units_ND.T)[~torch.eye(300, dtype=torch.bool)]
        assert found.record.mean_cosine == pytest.approx(float(pairs_NN.mean()))
        weight = loaded.model.head.decoder_weight.detach().double().numpy()
        of_weight = np.linalg.svd(weight, compute_uv=False)
        assert found.arrays["weight_singular_values"] == pytest.approx(of_weight, rel=1e-10)


@pytest.mark.usefixtures("undrawn")
def test_the_last_checkpoint_and_all_contexts(tiny_run, lmkit):
    line = (f"run={tiny_run}", "split=valid", "contexts=10000", "checkpoint=last")
    shown = lmkit("rank", *line)
    assert "contexts=10000: the valid split has only 590: all are measured\n" in shown
    ((_, found),) = measured(RunFolder(tiny_run), Rank, "", {})
    assert (found.record.num_contexts, found.record.all_contexts) == (590, 590)
    assert (tiny_run / "analysis/rank_valid_log_probs_590_last.npz").exists()


def test_a_folder_that_cannot_be_written_is_refused_first(tiny_run, refused, monkeypatch):
    tiny_run.joinpath("analysis").mkdir(exist_ok=True)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "analysis")
    assert "analysis cannot be written" in refused("rank", f"run={tiny_run}", "contexts=100")


def test_divergence_is_that_of_all_pairs(tiny_run, lmkit):
    lmkit("divergence", f"run={tiny_run}", "contexts=40")
    ((_, found),) = measured(RunFolder(tiny_run), Divergence, "", {})
    loaded = load_run(tiny_run, "best", None, None)
    rows = log_prob_matrix(loaded.model, loaded.data.eval_batches("test"))[:40].double()
    pairs = (rows.exp().unsqueeze(1) * (rows.unsqueeze(1) - rows.unsqueeze(0))).sum(2)
    assert found.record.exact == pytest.approx(float(pairs.sum()) / (40 * 39))


def test_divergence_of_one_pair_has_no_standard_error(tiny_run, lmkit):
    lmkit("divergence", f"run={tiny_run}", "contexts=2")
    ((_, found),) = measured(RunFolder(tiny_run), Divergence, "", {})
    assert (found.record.num_pairs, found.record.sampled_standard_error) == (1, None)
