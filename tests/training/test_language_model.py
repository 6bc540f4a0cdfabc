"""Perplexities are means over tokens, whatever the windows' lengths."""

import math
import warnings

import numpy as np
import pytest
import torch

from lmkit.data.corpus import TextSplits
from lmkit.data.datamodule import WindowsDataModule
from lmkit.heads.mixtures import SingleContext
from lmkit.heads.predictor import to_device
from lmkit.heads.transforms import Identity
from lmkit.measures.perplexity import mean_nll
from lmkit.training.language_model import LanguageModel
from lmkit.training.objective import RegularizedNLL
from lmkit.training.trainer import Trainer
from lmkit.trunk.awd_lstm import AWDLSTM
from tests.language_models import language_model, tied_head

V = 11


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(0)
    trunk = AWDLSTM(num_words=V, emb_dim=4, hidden_dim=5, out_dim=4, num_layers=2)
    head = tied_head(trunk, SingleContext(4), Identity())
    model = language_model(trunk, head, fused=True).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return model


@pytest.fixture
def data() -> WindowsDataModule:
    """2 x 17 targets in windows of 7, 7 and 3."""
    words = np.random.RandomState(0).randint(0, V, 36)
    corpus = TextSplits(tuple("abcdefghijk"), words, words, words)
    sizes = {"batch_size": 2, "valid_batch_size": 2, "test_batch_size": 2}
    lengths = {"bptt": 7, "max_length_delta": 3, "eval_length": 7}
    return WindowsDataModule(corpus=corpus, **sizes, **lengths)


def by_hand(model, windows) -> float:
    model.eval()
    state, nlls = model.trunk.initial_state(2), []
    with torch.no_grad():
        for window in windows:
            output = model.trunk(window.inputs_TB, state)
            state = output.state
            log_probs = model.head.log_probs(output.dropped_TBD)
            nlls.append(-log_probs[torch.arange(len(log_probs)), window.targets_TB.flatten()])
    assert len({len(nll) for nll in nlls}) > 1
    return float(torch.cat(nlls).mean())


def test_evaluation(model, data):
    windows = data.eval_batches("valid")
    assert mean_nll(model, windows) == pytest.approx(by_hand(model, windows), rel=1e-12)


def test_validation(model, data):
    windows = data.eval_batches("valid")
    for window in windows:
        model.validation_step(window, window.index)
    assert float(model.valid_nll.compute()) == pytest.approx(by_hand(model, windows), rel=1e-12)


def test_training(model, data):
    windows = list(data.train_batches)
    model.trainer, model.bad_window = Trainer(), torch.tensor(-1)
    for window in windows:
        model.on_train_batch_start(window, window.index)
        model.training_step(window, window.index)
    trained = model.train_perplexity()
    assert trained == pytest.approx(math.exp(by_hand(model, windows)), rel=1e-12)

    # saved after the epoch's last window: a run that resumes there still has it
    model.on_save_checkpoint(checkpoint := {})
    model.train_nll.reset()
    model.restore(checkpoint["lmkit_progress"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.train_perplexity() == trained


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_window_makes_the_host_wait_for_nothing(model, data):
    model.cuda()
    optimizer = model.configure_optimizers()
    model.trainer, model.bad_window = Trainer(), torch.tensor(-1, device="cuda")
    windows = [to_device(window, model.device) for window in data.train_batches]
    for window in windows:
        torch.cuda.set_sync_debug_mode("error" if window.index else "default")
        try:
            model.on_train_batch_start(window, window.index)
            model.training_step(window, window.index).backward()
            model.configure_gradient_clipping(optimizer, None, None)
            optimizer.step()
            optimizer.zero_grad()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(windows) > 1


def test_the_loss_is_nll_and_what_regularises_each_of_its_own_tensor():
    sizes = {"emb_dim": 4, "hidden_dim": 5, "out_dim": 4, "num_layers": 1}
    trunk = AWDLSTM(num_words=V, **sizes, output_dropout=0.5)
    head = tied_head(trunk, SingleContext(4), Identity())
    head.penalty, outputs = lambda hidden_TBD: 7.0, []
    trunk.register_forward_hook(lambda *of: outputs.append(of[2]))
    model = language_model(trunk, head, objective=RegularizedNLL(2.0, 3.0))
    words, state = torch.randint(V, (9, 2)), trunk.initial_state(2)
    loss, nll, *_ = model.step(words[:-1], words[1:], *(x for layer in state for x in layer))
    (out,) = outputs
    ar, tar = out.dropped_TBD.square().mean(), out.raw_TBD.diff(dim=0).square().mean()
    assert float(loss) == pytest.approx(float(nll + 2 * ar + 3 * tar + 7))


def test_the_norm_is_kept_as_it_was_before_clipping(model):
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    model.configure_gradient_clipping(torch.optim.SGD([weight], 1.0), 0.25)
    assert float(model.grad_norm) == pytest.approx(5)
    assert float(weight.grad.norm()) == pytest.approx(0.25)


def test_training_perplexity_is_of_nll_and_of_one_epoch(model, data):
    window = next(iter(data.train_batches))
    model.trainer, model.bad_window = Trainer(), torch.tensor(-1)
    for nll in (1.0, 3.0):  # the first windows of two epochs
        model.log_step(window, torch.tensor(nll), torch.tensor(9.0), torch.zeros(1, 1, 4).double())
    assert model.train_perplexity() == pytest.approx(math.exp(3))
