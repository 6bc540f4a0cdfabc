"""The spectrum while training: what it leaves, and that measuring changes nothing."""

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.experiment.load import load_run
from lmkit.measures import contexts as context_blocks_module
from lmkit.measures import memory, model_spectra
from lmkit.measures.contexts import context_blocks
from lmkit.measures.model_spectra import model_spectrum, spectrum_bytes
from lmkit.runs.array_files import epoch_spectrum, final_spectrum, read_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.checkpoint_files import load_checkpoint
from tests.tiny import SMALL, run_of, trained

OPTIONS = (*SMALL, "head/transform=gss", "max_epochs=4")


@pytest.fixture(scope="module")
def gss(tmp_path_factory) -> RunFolder:
    """A run that is measured after every other epoch."""
    measured = ("callbacks.spectrum.every=2", "callbacks.spectrum.contexts=150")
    path = tmp_path_factory.mktemp("runs")
    return trained(path, *OPTIONS, *measured, "conclusion.sample=150")


def test_spectra_and_rows_of_the_epochs_that_are_measured(gss):
    for matrix in ("log_probs", "transformed_logits"):
        for epoch in (2, 4):
            stored = read_spectrum(epoch_spectrum(gss, epoch, "valid", matrix))
            assert stored.measures["num_contexts"] == 150
        rows = [r for r in MetricsFile(gss.metrics).read() if "valid/ppl" in r]
        ranks = [row.get(f"spectrum/valid_{matrix}/press_rank") for row in rows]
        assert [rank is not None for rank in ranks] == [False, True, False, True]
        assert ranks[-1] == stored.measures["press_rank"]


def test_measuring_changes_no_weight(gss, tmp_path):
    without = trained(tmp_path, *OPTIONS, "callbacks.spectrum=null")
    assert not list(without.spectra.glob("epoch_*"))
    first, second = load_checkpoint(gss.last), load_checkpoint(without.last)
    for name, weight in first["state_dict"].items():
        assert torch.equal(weight, second["state_dict"][name]), name
    assert first["callbacks"]["AsgdSwitch"]["count"] > 0


def test_the_weights_that_count_are_measured(gss):
    path = epoch_spectrum(gss, 4, "valid", "log_probs")
    stored = torch.from_numpy(read_spectrum(path).singular_values_S)
    content = load_checkpoint(gss.last)
    averaged = load_run(gss.path, "last", None, None)
    windows = averaged.data.eval_batches("valid")
    found = model_spectrum(averaged.model, windows, 150).singular_values
    torch.testing.assert_close(found, stored, rtol=1e-6, atol=1e-6)
    averaged.model.load_state_dict(content["state_dict"])
    raw = model_spectrum(averaged.model, windows, 150).singular_values
    assert (raw - stored).abs().max() > 1e-3


def test_raw_weights_are_measured_where_they_are_asked_for(tmp_path):
    measured = ("callbacks.spectrum.weights=raw", "callbacks.spectrum.every=4")
    run = trained(tmp_path, *OPTIONS, *measured, "callbacks.spectrum.contexts=150")
    stored = read_spectrum(epoch_spectrum(run, 4, "valid", "log_probs")).singular_values_S
    last = load_run(run.path, "last", None, None)
    last.model.load_state_dict(load_checkpoint(run.last)["state_dict"])
    found = model_spectrum(last.model, last.data.eval_batches("valid"), 150).singular_values
    torch.testing.assert_close(found, torch.from_numpy(stored), rtol=1e-6, atol=1e-6)


def test_transformed_logits_are_stored_at_the_end(gss, trained_runs):
    stored = read_spectrum(final_spectrum(gss, "transformed_logits"))
    assert stored.measures["num_contexts"] == 150
    loaded = load_run(gss.path, "best", None, None)
    windows = loaded.data.eval_batches("test")
    found = model_spectrum(loaded.model, windows, 150, "transformed_logits")
    expected = torch.from_numpy(stored.singular_values_S)
    torch.testing.assert_close(found.singular_values, expected)
    for name in ("toy", "mos"):  # no transform, and no one context
        assert not list(run_of(trained_runs, name).spectra.glob("*transformed*"))


def test_blocks_of_contexts_are_the_first_ones_with_their_targets(mos, monkeypatch):
    monkeypatch.setattr(context_blocks_module, "BLOCK_MB", 0.05)
    model, windows = mos.model, mos.data.eval_batches("valid")
    blocks = list(context_blocks(model, windows, 150))
    # 0.05 MiB hold 21 rows of 3 x 200 logits in float32
    assert [len(block.targets_1N[0]) for block in blocks] == [*7 * [21], 3]
    hidden = torch.cat([block.hidden_1ND[0] for block in blocks])
    targets = torch.cat([block.targets_1N[0] for block in blocks])
    contexts = torch.cat([hidden_TBD.flatten(0, 1) for hidden_TBD, _ in model.head_inputs(windows)])
    assert torch.equal(hidden, contexts[:150])
    assert torch.equal(targets, torch.cat([w.targets_TB.flatten() for w in windows])[:150])


def test_a_spectrum_that_does_not_fit_says_how_many_contexts_would(mos, monkeypatch):
    needed = [spectrum_bytes(mos.model, count, "log_probs") for count in range(1, 300)]
    assert needed == sorted(needed)  # else more than those said might fit
    least = needed[56]
    monkeypatch.setattr(memory, "available_bytes", lambda device: least)
    monkeypatch.setattr(model_spectra, "available_bytes", lambda device: least)
    with pytest.raises(UserError, match="contexts=N with N at most 57"):
        model_spectra.require_fitting(mos.model, 300, "log_probs")
    monkeypatch.setattr(memory, "available_bytes", lambda device: 0)
    monkeypatch.setattr(model_spectra, "available_bytes", lambda device: 0)
    with pytest.raises(UserError, match="free some memory"):
        model_spectra.require_fitting(mos.model, 300, "log_probs")
    monkeypatch.setattr(memory, "available_bytes", lambda device: least)
    model_spectra.require_fitting(mos.model, 57, "log_probs")
