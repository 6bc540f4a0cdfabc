"""The averages are the mean of the weights after the switch, and what is validated with them."""

import math

import pytest
import pytorch_lightning as pl
import torch

from lmkit.errors.user_error import UserError
from lmkit.measures.perplexity import mean_nll
from lmkit.training.callbacks.asgd_switch import STATE_KEY, AsgdSwitch, load_evaluated_weights
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.triggers import AtEpoch, NonMonotone
from tests.training.callbacks.conftest import weights


def same(first: dict, second: dict) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


def mean(history: list[dict]) -> dict:
    return {name: torch.stack([w[name] for w in history]).mean(0) for name in history[0]}


def assert_close(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-14)


def valid_ppl(run, state: dict) -> float:
    """Valid perplexity of these weights, the model's own put back."""
    own = weights(run.model)
    run.model.load_state_dict(state, strict=False)
    ppl = math.exp(mean_nll(run.model, run.data.eval_batches("valid")))
    run.model.load_state_dict(own, strict=False)
    return ppl


@pytest.fixture(scope="module")
def run(fit):
    """One run for all tests, which leave it as it is."""
    return fit(AtEpoch(2), max_epochs=4)


def test_validation_runs_with_raw_weights_before_the_switch_and_averages_after_it(run):
    records = run.records
    epochs = torch.tensor(records.epochs)
    assert len(records.validated) == 4
    for epoch, validated in enumerate(records.validated, start=1):
        last = int((epochs == epoch).nonzero().max())
        if epoch <= 2:
            assert same(validated, records.weights[last])
        else:
            first = int((epochs == 3).nonzero().min())
            assert_close(validated, mean(records.weights[first : last + 1]))
    assert run.switch.count == len(records.epochs) - first > 10
    # what is not trained has no average
    assert "trunk.layers.0.bias_hh" not in run.switch.averages


def test_both_perplexities_are_reported(run):
    records = run.records
    for epoch, report in enumerate(records.reports, start=1):
        last = max(i for i, e in enumerate(records.epochs) if e == epoch)
        raw = valid_ppl(run, records.weights[last])
        assert report["valid/ppl_raw"] == pytest.approx(raw, rel=1e-12)
        used = valid_ppl(run, records.validated[epoch - 1])
        assert report["valid/ppl"] == pytest.approx(used, rel=1e-12)
        assert report["averaging"] == (epoch > 2)
        assert (report["valid/ppl"] == report["valid/ppl_raw"]) == (epoch <= 2)


def test_averaged_swaps_in_and_out_exactly(run):
    raw = weights(run.model)
    averages = {name: average.clone() for name, average in run.switch.averages.items()}
    with run.switch.averaged(run.model):
        assert same(weights(run.model), averages)
        # the decoder shares the embedding's weight under either name
        assert run.model.head.decoder_weight is run.model.trunk.embedding_weight
    assert same(weights(run.model), raw)
    assert same(run.switch.averages, averages)
    with pytest.raises(ZeroDivisionError), run.switch.averaged(run.model):
        raise ZeroDivisionError
    assert same(weights(run.model), raw)


def test_the_trigger_sees_the_valid_losses_that_are_logged(fit):
    run = fit(NonMonotone(1), max_epochs=3)
    expected = [report["valid/ppl_raw"] for report in run.records.reports]
    history = run.switch.trigger.history
    assert [math.exp(nll) for nll in history] == pytest.approx(expected, rel=1e-12)


def test_a_checkpoint_holds_raw_weights_and_the_averages_beside_them(run, make_model):
    checkpoint = load_checkpoint(run.checkpoint)
    names = run.switch.averages.keys()
    assert same({n: checkpoint["state_dict"][n] for n in names}, weights(run.model))
    assert same(checkpoint["callbacks"][STATE_KEY]["averages"], run.switch.averages)
    model = make_model()
    assert load_evaluated_weights(model, checkpoint) is True
    assert same(weights(model), run.switch.averages)


def test_what_a_callback_had_frozen_is_loaded_as_it_was(fit, make_model):
    class Frozen(pl.Callback):
        def setup(self, trainer, pl_module, stage) -> None:
            pl_module.trunk.embedding_weight.requires_grad_(False)

    run, model = fit(AtEpoch(1), 2, Frozen()), make_model()
    assert load_evaluated_weights(model, load_checkpoint(run.checkpoint)) is True
    assert torch.equal(model.trunk.embedding_weight, run.model.trunk.embedding_weight)


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_trained_stays_so(fit, frozen):
    class Changing(pl.Callback):
        def setup(self, trainer, pl_module, stage) -> None:
            pl_module.head.decoder_bias.requires_grad_(not frozen)

        def on_train_epoch_start(self, trainer, pl_module) -> None:
            if trainer.current_epoch == 1:
                pl_module.head.decoder_bias.requires_grad_(frozen)

    with pytest.raises(UserError, match=r"froze or unfroze head\.decoder_bias"):
        fit(AtEpoch(1), 2, Changing())


@pytest.mark.parametrize("epochs", [1, 2])
def test_until_the_first_average_the_raw_weights_are_evaluated(fit, make_model, epochs):
    run, model = fit(AtEpoch(2), epochs), make_model()
    assert load_evaluated_weights(model, load_checkpoint(run.checkpoint)) is False
    assert same(weights(model), weights(run.model))


def test_the_triggers_history_makes_the_round_trip():
    original, copy = AsgdSwitch(NonMonotone(2)), AsgdSwitch(NonMonotone(2))
    original.trigger.fires(1, 5.0)
    copy.load_state_dict(original.state_dict())
    assert copy.trigger.history == [5.0]
