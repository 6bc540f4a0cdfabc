"""DOC's penalties, and that the trunk hands it what its layers put out.

Shapes: T window length, B batch, D features of the layers used, V vocabulary.
"""

import pytest
import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError
from lmkit.experiment.objects import _require_input
from lmkit.fixed_trunk.trunk import FixedTrunk
from lmkit.heads.direct_output import DirectOutputConnection
from lmkit.heads.head import Head
from lmkit.heads.mixtures import SingleContext
from lmkit.trunk.awd_lstm import AWDLSTM
from tests.heads.conftest import EXPERTS, SIZES, WEIGHTS, D, E, V, make_batch, make_head
from tests.language_models import head_parts, language_model

T, B = 7, 3


def doc(experts: list[int], **more: str) -> DirectOutputConnection:
    return DirectOutputConnection(**SIZES, experts=experts, **WEIGHTS, **more)


@pytest.fixture
def head() -> Head:
    return make_head("doc", "gss")


@pytest.fixture
def batch(head) -> tuple[Tensor, Tensor]:
    return make_batch(head, T, B)


def test_the_penalty_is_the_squared_coefficient_of_variation(head, batch):
    prior_NK = torch.softmax(batch[0].reshape(-1, E + D)[:, E:] @ head.mixture.prior.weight.T, 1)
    use = [float(sum(row[k] for row in prior_NK)) for k in range(5)]
    mean = sum(use) / 5
    expected = 0.7 * sum((u - mean) ** 2 for u in use) / 5 / mean**2
    assert float(head.penalty(batch[0])) == pytest.approx(expected, rel=1e-12)
    with torch.no_grad():
        head.mixture.prior.weight.zero_()
    assert float(head.penalty(batch[0])) == pytest.approx(0, abs=1e-12)


def test_the_programs_penalty_is_over_the_sums_of_each_column(head, batch):
    """(K - 1) var / mean^2 of the B K sums over time, the variance unbiased."""
    mixture = head.mixture
    hidden_TBD = batch[0]
    prior_TBK = torch.softmax(hidden_TBD[..., E:] @ mixture.prior.weight.T, 2)
    sums = [float(value) for value in prior_TBK.sum(0).flatten()]
    mean = sum(sums) / len(sums)
    variance = sum((each - mean) ** 2 for each in sums) / (len(sums) - 1)
    mixture.penalty_of = "program"
    assert float(head.penalty(hidden_TBD)) == pytest.approx(0.7 * 4 * variance / mean**2, rel=1e-12)
    assert hidden_TBD.shape[1] > 1  # else both penalties sum over the same


@pytest.mark.parametrize("penalty_of", ["paper", "program"])
def test_one_component_has_no_penalty(penalty_of):
    alone = doc([0, 0, 1], penalty_of=penalty_of)
    assert float(alone.penalty(torch.randn(3, 1, E + D))) == 0


def test_the_paper_s_penalty_is_the_default_and_another_is_refused():
    assert doc(EXPERTS).penalty_of == "paper"
    with pytest.raises(UserError, match="penalty_of must be one of paper, program"):
        doc(EXPERTS, penalty_of="code")


@pytest.mark.parametrize(
    ("layers", "trunk", "reason"),
    [
        (
            (1, 3),
            AWDLSTM(num_words=V, **SIZES),
            "takes the output of layer 3, and trunk.num_layers is 2",
        ),
        ((0,), FixedTrunk(V, emb_dim=E, out_dim=E), "FixedTrunk gives those of its last alone"),
    ],
)
def test_layers_that_a_trunk_does_not_have_are_refused(layers, trunk, reason):
    mixture = SingleContext(E)
    mixture.layers = layers
    with pytest.raises(UserError, match=reason):
        _require_input(mixture, trunk)


def test_the_module_hands_over_the_layers_side_by_side():
    dropouts = {f"{place}_dropout": 0.3 for place in ("input", "hidden", "output")}
    trunk = AWDLSTM(num_words=V, **SIZES, **dropouts)
    model = language_model(trunk, Head(head_parts(doc(EXPERTS), nn.Identity(), V)))
    tokens = torch.randint(V, (T, B))
    output = model.eval().trunk(tokens, trunk.initial_state(B))
    hidden_TBD = model.head_input(output)
    assert torch.equal(hidden_TBD[..., :E], trunk.embedding_weight[tokens])
    assert torch.equal(hidden_TBD[..., E:], output.dropped_TBD)
    output = model.train().trunk(tokens, trunk.initial_state(B))
    assert output.layers_TBD[-1] is output.dropped_TBD
    assert (output.layers_TBD[0] == 0).any()  # after its dropout


@pytest.mark.parametrize("experts", [[1, 2], [1, 2, 0], [0, -1, 2], 20])
def test_numbers_that_do_not_fit_the_layers_are_refused(experts):
    with pytest.raises(UserError, match=r"head\.mixture\.experts"):
        doc(experts)
