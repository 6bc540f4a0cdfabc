"""The gradient bottleneck: while a run is trained, and by its command."""

import json

import pytest
import torch

from lmkit.experiment.load import load_run
from lmkit.measures import contexts, gradient_share
from lmkit.measures.gradient_share import logit_gradients, model_bottleneck
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.checkpoint_files import load_checkpoint
from tests.tiny import SMALL, trained

OPTIONS = (
    *(*SMALL, "callbacks.spectrum=null", "trunk.emb_dim=12", "trunk.out_dim=12"),
    *("head/mixture=softmaxes", "head.mixture.num_experts=3", "head/transform=gss"),
)
MEASURED = [
    "callbacks=[default,gradient_bottleneck]",
    "callbacks.gradient_bottleneck.every=2",
    "callbacks.gradient_bottleneck.contexts=150",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> RunFolder:
    """A run that logs the gradient bottleneck of every other epoch."""
    return trained(tmp_path_factory.mktemp("runs"), *OPTIONS, "max_epochs=4", *MEASURED)


def test_logit_gradients_are_those_of_the_loss(folder):
    """Through the chain rule they must give the gradients of decoder weight and bias."""
    loaded = load_run(folder.path, "best", None, None)
    model, head = loaded.model.eval(), loaded.model.head
    window = next(iter(loaded.data.eval_batches("valid")))
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


def test_the_share_is_that_of_the_projection(folder, monkeypatch):
    loaded = load_run(folder.path, "best", None, None)
    model = loaded.model.eval()
    found = model_bottleneck(model, loaded.data.eval_batches("valid"), 100)
    (hidden, targets), *_ = model.head_inputs(loaded.data.eval_batches("valid"))
    with torch.no_grad():
        flat = hidden.flatten(0, 1)[:100].unsqueeze(0)
        gradients = logit_gradients(model.head, flat, targets.flatten()[:100].unsqueeze(0))
    gradients = gradients.flatten(0, 1).double()
    weight = model.head.decoder_weight.detach().double()
    projection = weight @ torch.linalg.pinv(weight)
    assert found.share == pytest.approx(float((gradients @ projection).norm() / gradients.norm()))
    shares = (gradients @ projection).norm(dim=1) / gradients.norm(dim=1)
    assert found.mean_share == pytest.approx(float(shares.mean()))
    assert found.low_share == pytest.approx(float(shares.quantile(0.05)))
    assert found.high_share == pytest.approx(float(shares.quantile(0.95)))
    random = torch.randn(4000, 200, generator=torch.Generator().manual_seed(1)).double()
    squares = (random @ projection).square().sum() / random.square().sum()
    assert found.isotropic_share == pytest.approx(float(squares) ** 0.5, rel=0.02)
    assert (found.num_components, found.decoder_rank, found.num_words) == (3, 12, 200)
    assert (found.update_contexts, found.update_bound) == (100, None)
    assert 0 < found.update_rank <= 100
    monkeypatch.setattr(gradient_share, "UPDATE_CONTEXTS", 30)
    monkeypatch.setattr(contexts, "BLOCK_MB", 0.05)  # blocks of 21
    first = model_bottleneck(model, loaded.data.eval_batches("valid"), 100)
    assert (first.update_contexts, first.num_contexts) == (30, 100)


def test_epochs_are_logged_and_training_is_undisturbed(folder, tmp_path):
    rows = [row for row in MetricsFile(folder.metrics).read() if "valid/ppl" in row]
    name = "gradient_bottleneck/valid_share"
    assert [name in row for row in rows] == [False, True, False, True]
    last = load_run(folder.path, "last", None, None)
    found = model_bottleneck(last.model, last.data.eval_batches("valid"), 150)
    assert rows[-1][name] == pytest.approx(found.share, rel=1e-6)
    assert rows[-1]["gradient_bottleneck/valid_update_rank"] == found.update_rank
    cosine = rows[-1]["gradient_bottleneck/valid_update_cosine"]
    assert cosine == pytest.approx(found.update_cosine, rel=1e-4)
    # resumed after the second epoch, and measured in no other; the last on another split
    trained(tmp_path, *OPTIONS, "max_epochs=2", *MEASURED)
    other = ("callbacks.gradient_bottleneck.every=4", "callbacks.gradient_bottleneck.split=test")
    resumed = trained(tmp_path, *OPTIONS, "max_epochs=4", *MEASURED, *other)
    measured = [r for r in MetricsFile(resumed.metrics).read() if name in r]
    assert [row["epoch"] for row in measured] == [2]
    assert measured[0][name] == rows[1][name]
    found = model_bottleneck(last.model, last.data.eval_batches("test"), 150)
    (row,) = (r for r in MetricsFile(resumed.metrics).read() if name.replace("valid", "test") in r)
    assert row["gradient_bottleneck/test_share"] == pytest.approx(found.share, rel=1e-6)
    first, second = load_checkpoint(folder.last), load_checkpoint(resumed.last)
    for key, weight in first["state_dict"].items():
        assert torch.equal(weight, second["state_dict"][key]), key
    assert torch.equal(first["lmkit_progress"]["cpu_rng"], second["lmkit_progress"]["cpu_rng"])


def test_the_command_measures_a_checkpoint(folder, lmkit):
    shown = lmkit("gradient_bottleneck", f"run={folder.path}", "split=test", "contexts=2000")
    assert "contexts=2000: the test split has only 599: all are measured\n" in shown
    assert "share of the norm that passes" in shown
    content = json.loads((folder.analysis / "gradient_bottleneck.json").read_text())
    assert (content["checkpoint"], content["num_contexts"]) == ("best", 599)
    loaded = load_run(folder.path, "best", None, None)
    found = model_bottleneck(loaded.model, loaded.data.eval_batches("test"), 599)
    assert content["share"] == pytest.approx(found.share, rel=1e-6)
