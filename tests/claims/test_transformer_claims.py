"""The Transformer trunk through the command, and with every head, mixture and transform."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch

from lmkit.cli.entry import CONFIGS
from lmkit.experiment.objects import make_model
from tests.claims.conftest import typed_in
from tests.tiny import composed, without

SMALL = ("trunk.hidden_dim=8", "trunk.num_heads=2", "trunk.memory=30", "optimizer.lr=0.02")
SMALL += ("trunk.emb_dim=6", "trunk.out_dim=6", "trunk.num_layers=2")
NOT_ITS_OWN = without("optimizer.", "trunk.", "switch_epoch", "max_epochs")
EXPERIMENT = ("experiment=toy_transformer", *NOT_ITS_OWN, *SMALL, "max_epochs=3")
PARTS = ("head", "head/mixture", "head/transform")
# options that fit the tiny trunk, where a kind's own do not
FITTING = {"doc": ("head.mixture.experts=[1,2,2]",), "mixtape": ("head.gate_dim=3",)}


def sections(part: str) -> dict[str, dict]:
    """By name, the section of each kind of a part, but for variants of another."""
    files = sorted((CONFIGS / part).glob("*.yaml"))
    found = {}
    for name in [f.stem for f in files if part == "head" or "defaults:" not in f.read_text()]:
        options = (f"{part}={name}", *FITTING.get(name, ()))
        section = composed("trunk=transformer", *SMALL, *options)
        for key in part.split("/"):
            section = section[key]
        found[name] = section
    return found


@pytest.mark.slow
def test_every_head_with_every_mixture_and_transform_trains_a_step():
    config = composed("experiment=toy_transformer", *SMALL, "optimizer.lr=0.01")
    torch.manual_seed(0)  # dropout alone could raise so few losses
    heads, mixtures, transforms = (sections(part) for part in PARTS)
    counts_V, tokens = torch.arange(1, 31), torch.randint(30, (9, 4))
    trained = []
    for head, mixture, transform in product(heads, mixtures, transforms):
        if head != "default" and (mixture, transform) != ("none", "identity"):
            continue  # other heads go with parts as their own tests say
        section = heads[head] | {"mixture": mixtures[mixture], "transform": transforms[transform]}
        model = make_model(config | {"head": section}, counts_V)
        state = [x for layer in model.trunk.initial_state(4) for x in layer]
        optimizer = model.configure_optimizers()
        nlls = []
        for _ in range(4):
            loss, nll, _, *state = model.step(tokens[:-1], tokens[1:], *state)
            assert not any(x.requires_grad for x in state)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            nlls.append(float(nll))
        assert min(nlls[1:]) < nlls[0], (head, mixture, transform, nlls)
        trained.append((head, mixture, transform))
    assert len(trained) == len(heads) - 1 + len(mixtures) * len(transforms)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("transformer")
    with pytest.MonkeyPatch.context() as monkeypatch:
        typed_in(folder, monkeypatch)("train", *EXPERIMENT)
    (result,) = folder.glob("runs/*/result.json")
    return result.parent


def test_it_trains_and_is_measured_as_any_trunk(trained, lmkit):
    metrics = json.loads((trained / "result.json").read_text())["metrics"]
    assert metrics["test_ppl"] < 35  # of 40 words
    lmkit("evaluate", f"run={trained}", "method=dynamic", "method.batch_size=10")
    lmkit("rank", f"run={trained}", "contexts=100")
    lmkit("samples", f"run={trained}", "texts=2", "length=8")
    written = {path.name for path in (trained / "analysis").iterdir()}
    measured = {"evaluate_dynamic_test.json", "rank_test_log_probs_100.json", "samples.json"}
    assert measured <= written


def test_it_is_finetuned_within_the_epochs_of_its_schedule(trained, lmkit, refused):
    start = ("finetune", f"run={trained}", "logger=csv", "callbacks=[default]", "runs_dir=runs")
    assert "give max_epochs=3 or fewer" in refused(*start)
    assert "give max_epochs=3 or fewer, not None" in refused(*start, "max_epochs=null")
    lmkit(*start, "max_epochs=2", "callbacks.spectrum=null", "callbacks.progress_bar=null")
    (row,) = Path("runs").glob("*_finetune-*/result.json")
    assert json.loads(row.read_text())["metrics"]["valid_ppl"] < 35
