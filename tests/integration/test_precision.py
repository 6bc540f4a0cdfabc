"""Training in bf16-mixed leaves a float32 model: its evaluation, and the rank of its log P."""

import math

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import define
from lmkit.experiment.load import load_run
from lmkit.heads.predictor import exact_evaluation
from lmkit.measures.perplexity import mean_nll
from lmkit.spectra.measures import press_rank, press_tolerance
from lmkit.training.trainer import Trainer
from tests.language_models import log_prob_matrix
from tests.tiny import SMALL, composed, trained

OPTIONS = (*SMALL, "data.test_tokens=2000", "trunk.emb_dim=12", "trunk.out_dim=12", "max_epochs=2")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    in_bf16 = (*OPTIONS, "trainer.precision=bf16-mixed")
    return load_run(trained(tmp_path_factory.mktemp("runs"), *in_bf16).path, "best", None, None)


def test_softmax_trained_in_bf16_has_rank_of_at_most_e_plus_2(loaded):
    rows = log_prob_matrix(loaded.model, loaded.data.eval_batches("test"))
    tolerance = press_tolerance(*rows.shape, torch.float32)
    assert 3 < press_rank(torch.linalg.svdvals(rows.double()), tolerance) <= 12 + 2


def test_evaluation_is_float32_even_inside_autocast(loaded):
    model = loaded.model
    windows = list(loaded.data.eval_batches("valid"))
    alone = mean_nll(model, windows)
    with torch.autocast("cpu", torch.bfloat16):
        assert mean_nll(model, windows) == alone
    # as is the validation of a training, which Lightning runs inside autocast
    valid_ppl = loaded.folder.read_result().metrics["valid_ppl"]
    assert math.exp(alone) == pytest.approx(valid_ppl, rel=1e-6)


@pytest.mark.parametrize("of", [torch.backends.cuda.matmul, torch.backends.cudnn])
def test_evaluation_is_without_tf32(loaded, of):
    before = of.allow_tf32
    try:
        of.allow_tf32 = True
        with exact_evaluation(loaded.model):
            assert not of.allow_tf32
        assert of.allow_tf32
    finally:
        of.allow_tf32 = before


def test_training_uses_tf32_only_where_it_is_asked_for(monkeypatch):
    # PyTorch's default is to use it in cuDNN's recurrent layers
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    torch.backends.cuda.matmul.allow_tf32 = True
    Trainer(accelerator="cpu")
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_tf32_is_a_gpus_alone():
    config = composed("trainer.precision=tf32")
    with pytest.raises(UserError, match=r"trainer\.precision=tf32 needs a GPU"):
        define(config, has_gpu=False)
    assert define(config, has_gpu=True).accelerator == "gpu"
    config["trainer"]["accelerator"] = "cpu"
    with pytest.raises(UserError, match=r"trainer\.precision=tf32 needs a GPU"):
        define(config, has_gpu=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["32-true", "tf32", "bf16-mixed"])
def test_on_a_gpu_each_precision_trains(tmp_path, precision):
    graphs = "callbacks=[default,cuda_graphs]"
    folder = trained(tmp_path, *OPTIONS, graphs, f"trainer.precision={precision}")
    assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
    assert 1 < folder.read_result().metrics["test_ppl"] < 150
