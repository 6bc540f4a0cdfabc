"""What is asked of a head with parts of the user's own, before it trains."""

import copy

import torch
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head


def own_parts(head: Head) -> list[str]:
    """The classes of its modules that are neither lmkit's nor PyTorch's."""
    kinds = {type(module) for module in head.modules()}
    named = (f"{kind.__module__}.{kind.__name__}" for kind in kinds)
    return sorted(name for name in named if not name.startswith(("lmkit.", "torch.")))


def require_one_model(head: Head, again: Head) -> None:
    """Raises UserError unless a head trains by the log P that it is measured by, and another with
    its state has the same.

    Args:
        again: made anew, as for a run that is loaded.
    """
    given = " and ".join(own_parts(head))
    outputs_TBD = torch.linspace(-1, 1, 6 * head.mixture.in_dim).view(2, 3, -1)
    targets_TB = torch.arange(6).view(2, 3) % len(head.decoder_bias)
    state = copy.deepcopy(head.state_dict())
    was_training = head.training
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        log_p_NV = head.eval().log_probs(outputs_TBD)
        loss = head.nll(outputs_TBD, targets_TB)
        again.load_state_dict(state)
        loaded_NV = again.eval().log_probs(outputs_TBD)
        head.load_state_dict(state)
    head.train(was_training)
    sums_N = log_p_NV.exp().sum(1)
    if not _close(sums_N, torch.ones_like(sums_N)):
        raise UserError(f"{given}: the probabilities of a row of log_probs sum to {sums_N[0]:.4g}")
    expected = -log_p_NV.gather(1, targets_TB.view(-1, 1)).mean()
    if not _close(loss, expected):
        raise UserError(
            f"{given}: the loss of six words is {loss:.4f} nats, and by log_probs {expected:.4f}: "
            f"they must be of one model (what regularises a head is its penalty)"
        )
    if not _close(loaded_NV, log_p_NV):
        raise UserError(
            f"{given}: made anew with the same state it is another model: what its constructor "
            f"draws, or makes of word_counts_V, must be a parameter or a buffer"
        )


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-3)
