"""Training steps whose trunk `torch.compile` has compiled, against the same steps as written.

Shapes: T window length, B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.experiment.objects import check_model
from lmkit.heads.mixtures import SingleContext
from lmkit.heads.transforms import Identity
from lmkit.training.language_model import LanguageModel, compiled
from lmkit.trunk.qrnn import AWDQRNN
from lmkit.trunk.transformer import Transformer
from lmkit.trunk.trunk import Trunk
from tests.language_models import language_model, tied_head

V, E, B, BPTT = 13, 8, 3, 10
SIZES = {"num_words": V, "emb_dim": E, "hidden_dim": 12, "out_dim": E, "num_layers": 1}
TRUNKS: dict[str, Callable[..., Trunk]] = {
    "transformer": partial(Transformer, **SIZES, num_heads=2, memory=7),
    "qrnn": partial(AWDQRNN, **SIZES),
}


def model_of(kind: str, **dropouts: float) -> LanguageModel:
    torch.manual_seed(4)
    trunk = TRUNKS[kind](**dropouts)
    return language_model(trunk, tied_head(trunk, SingleContext(E), Identity()))


def flat_state(model: LanguageModel) -> list[torch.Tensor]:
    return [x for layer in model.trunk.initial_state(B) for x in layer]


def compile_for(model: LanguageModel, length: int = BPTT) -> None:
    tokens_TB = torch.zeros(length, B, dtype=torch.long)
    parameters = list(model.trunk.parameters())
    model.compiled_encode = compiled(model.encode, tokens_TB, flat_state(model), parameters)


def losses(model: LanguageModel, lengths: list[int]) -> list[float]:
    """Of training steps on windows of these lengths."""
    optimizer = model.configure_optimizers()
    words = torch.randint(V, (sum(lengths) + 1, B), generator=torch.Generator().manual_seed(5))
    state, start, found = flat_state(model), 0, []
    for length in lengths:
        inputs_TB, targets_TB = words[start:][:length], words[start + 1 :][:length]
        loss, _, _, *state = model.step(inputs_TB, targets_TB, *state)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        start += length
        found.append(float(loss.detach()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRUNKS)
def test_a_compiled_model_has_the_losses_of_the_plain_one_in_all_lengths(kind: str):
    lengths = [10, 12, 9, 16, 10, 13]  # of one power of two, for which a QRNN has one loop
    plain, fast = model_of(kind), model_of(kind)
    names = list(fast.state_dict())
    random_state = torch.get_rng_state()
    compile_for(fast)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert list(fast.state_dict()) == names
    assert all(p.grad is None for p in fast.parameters())
    expected = losses(plain, [*lengths, 1, 3])
    assert losses(fast, [*lengths, 1, 3]) == pytest.approx(expected, rel=1e-5)
    assert expected[0] != pytest.approx(expected[-3], rel=1e-3)  # steps were taken


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRUNKS)
def test_windows_of_usual_lengths_are_all_taken_by_the_compiled_code(kind: str, monkeypatch):
    model = model_of(kind, input_dropout=0.2, hidden_dropout=0.2, weight_dropout=0.2)
    compile_for(model)

    monkeypatch.setattr("lmkit.training.language_model.STANCE", "fail_on_recompile")
    losses(model, [10, 12, 11, 16, 10])
    with pytest.raises(Exception, match="recompile"):
        losses(model, [1])


def test_compiling_is_refused_where_it_does_not_serve():
    def refusal(*line: str) -> str:
        with pytest.raises(UserError) as refused:
            check_model(plain_config(compose("train", ["compile=true", *line])))
        return str(refused.value)

    assert "trunk=transformer and trunk=qrnn faster, and not AWD-LSTM" in refusal()
    assert "and not Mogrifier LSTM" in refusal("trunk=mogrifier")
    graphs = refusal("trunk=qrnn", "callbacks=[default,cuda_graphs]")
    assert graphs == "compile=true and callbacks.cuda_graphs do not go together: choose one"
