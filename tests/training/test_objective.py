"""The training objective by hand.

Shapes: T window length, B batch, D trunk output.
"""

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.training.objective import RegularizedNLL

NLL = torch.tensor(5.0)
# (T, B, D) = (3, 1, 2)
DROPPED = torch.tensor([[[0.0, 2.0]], [[1.0, 0.0]], [[-3.0, 0.0]]])
RAW = torch.tensor([[[1.0, 1.0]], [[2.0, 1.0]], [[2.0, -2.0]]])


def test_by_hand():
    ar = (4 + 1 + 9) / 6  # squares of what was dropped out
    tar = (1 + 0 + 0 + 9) / 4  # squares of the raw output's steps: (1, 0), (0, -3)
    assert RegularizedNLL(2.0, 1.0)(NLL, DROPPED, RAW).item() == pytest.approx(5 + 2 * ar + tar)
    assert RegularizedNLL(2.0, 0.0)(NLL, DROPPED, RAW).item() == pytest.approx(5 + 2 * ar)
    assert RegularizedNLL(0.0, 3.0)(NLL, DROPPED, RAW).item() == pytest.approx(5 + 3 * tar)
    assert RegularizedNLL(0.0, 0.0)(NLL, DROPPED, RAW) is NLL


def test_a_window_of_one_step_has_no_step_to_regularise():
    loss = RegularizedNLL(2.0, 1.0)(NLL, DROPPED[:1], RAW[:1])
    assert loss.item() == pytest.approx(5 + 2 * (0 + 4) / 2)


def test_regularisation_of_bf16_outputs_is_in_float32():
    """1.1015625 is bf16's 1.1, and its square, and their difference's, have no place in bf16."""
    outputs = torch.full((2, 3, 4), 1.1, dtype=torch.bfloat16)
    outputs[1] *= 2
    assert outputs[0, 0, 0] == 1.1015625
    loss = RegularizedNLL(2.0, 3.0)(NLL, outputs, outputs)
    assert loss.dtype == torch.float32
    square = 1.1015625**2
    assert loss.item() == pytest.approx(5 + 2 * (square + 4 * square) / 2 + 3 * square, rel=1e-6)


@pytest.mark.parametrize(
    ("ar_weight", "tar_weight", "option"),
    [(-1.0, 0.0, "ar_weight"), (0.0, -1.0, "tar_weight"), (float("inf"), 0.0, "ar_weight")],
)
def test_impossible_weights_name_the_option(ar_weight, tar_weight, option):
    with pytest.raises(UserError, match=rf"objective\.{option}"):
        RegularizedNLL(ar_weight, tar_weight)
