"""How much of the loss gradient a head passes on to its context vectors, also while training.

Shapes: N contexts, n contexts of a block, D trunk output, E embedding, K components, R rank of the
decoder's weight, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from lmkit.data.windows import Window
from lmkit.errors.user_error import UserError, require_choice, require_count
from lmkit.heads.chunked_nll import chunk_rows
from lmkit.heads.head import Head
from lmkit.spectra.bottleneck import GradientShares, orthonormal_basis
from lmkit.training.context import RunCallback
from lmkit.training.head_module import HeadModule, exact_evaluation, to_device

BLOCK_MB = 64  # of one block's logits


class Bottleneck(NamedTuple):
    """The share ||Q Q^T g|| / ||g|| of the gradients with respect to the logits."""

    num_contexts: int
    num_components: int  # K: each has logits, and so a gradient, of its own
    num_words: int
    decoder_rank: int
    share: float  # of all gradients as one vector
    mean_share: float  # mean over contexts and components
    low_share: float  # of which 5 % are lower
    high_share: float  # of which 5 % are higher
    isotropic_share: float  # sqrt(R / V): what a gradient of random direction would have


def model_bottleneck(
    model: HeadModule, windows: Iterable[Window], num_contexts: int
) -> Bottleneck:
    """The gradient bottleneck over the first `num_contexts` contexts, without dropout.

    Draws no random number and leaves every gradient of the parameters as it is.

    Raises: UserError when the head's loss is not the one of the contract in `lmkit.heads.head`.
    """
    head = model.head
    if not head.mixes_softmaxes:
        raise UserError(
            f"the gradient bottleneck is not defined for {type(head).__name__}: its logits are no "
            "products of contexts with the decoder"
        )
    basis_VR = orthonormal_basis(head.decoder_weight)
    shares = GradientShares(basis_VR)
    for hidden_1ND, targets_1N in _first(model, windows, num_contexts):
        with exact_evaluation(model, model.device.type):
            shares.add(logit_gradients(head, hidden_1ND, targets_1N).flatten(0, 1))
    found = shares.result()
    finite = found.per_context_N[found.per_context_N.isfinite()]  # NaN: a gradient of 0
    num_components = len(found.per_context_N) // num_contexts
    num_words, rank = basis_VR.shape
    return Bottleneck(
        num_contexts,
        num_components,
        num_words,
        rank,
        found.total,
        float(finite.mean()),
        float(finite.quantile(0.05)),
        float(finite.quantile(0.95)),
        (rank / num_words) ** 0.5,
    )


def logit_gradients(head: Head, hidden_1ND: Tensor, targets_1N: Tensor) -> Tensor:
    """Gradients (N, K, V) of the targets' summed nll with respect to the logits, before the
    transform."""
    targets_N1 = targets_1N.reshape(-1, 1)
    log_prior_NK, context_NKE = head.contexts(hidden_1ND)
    logits_NKV = head.logits(context_NKE).detach().requires_grad_()
    with torch.enable_grad():
        log_p_NKV = F.log_softmax(head.transform(logits_NKV), dim=-1)
        log_p_NV = torch.logsumexp(log_prior_NK.detach().unsqueeze(-1) + log_p_NKV, dim=1)
        nll_N1 = -log_p_NV.gather(1, targets_N1)
        (gradient_NKV,) = torch.autograd.grad(nll_N1.sum(), logits_NKV)
    expected_N1 = head.token_nll(hidden_1ND, targets_1N).reshape(-1, 1)
    if not torch.allclose(nll_N1.detach(), expected_N1, rtol=1e-3, atol=1e-3):
        raise UserError(
            f"the gradient bottleneck is not defined for {type(head).__name__}: its loss is not "
            "that of a mixture of softmaxes of transformed logits"
        )
    return gradient_NKV


class GradientBottleneck(RunCallback):
    """Reports the bottleneck every `every` epochs, of the weights that count, into their rows.

    Args:
        every: epochs between two measurements.
        contexts: first contexts of the split that are taken.
        split: train, valid or test.
    """

    def __init__(self, *, every: int, contexts: int, split: str) -> None:
        require_count("callbacks.gradient_bottleneck.every", every)
        require_count("callbacks.gradient_bottleneck.contexts", contexts)
        require_choice("callbacks.gradient_bottleneck.split", split, ("train", "valid", "test"))
        self.every, self.contexts, self.split = every, contexts, split

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: HeadModule) -> None:  # type: ignore[override]
        if (trainer.current_epoch + 1) % self.every:
            return
        windows = trainer.datamodule.eval_windows(self.split)
        contexts = min(self.contexts, windows.num_targets)
        with self.run.switch.averaged(pl_module):
            found = model_bottleneck(pl_module, windows, contexts)
        for name in ("share", "mean_share"):
            pl_module.report(f"gradient_bottleneck/{self.split}_{name}", getattr(found, name))


def _first(
    model: HeadModule, windows: Iterable[Window], num_contexts: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The first contexts (1, n, D) and their targets (1, n), as blocks of BLOCK_MB of logits."""
    head, seen = model.head, 0
    itemsize = head.decoder_weight.element_size()
    rows = chunk_rows(head.mixture.num_experts, len(head.decoder_bias), itemsize, BLOCK_MB)
    for hidden_TBD, window in model.outputs(windows):
        targets_TB = to_device(window, model.device).targets_TB
        hidden_ND = hidden_TBD.flatten(0, 1)[: num_contexts - seen]
        targets_N = targets_TB.flatten()[: num_contexts - seen]
        seen += len(hidden_ND)
        for hidden, targets in zip(hidden_ND.split(rows), targets_N.split(rows), strict=True):
            yield hidden.unsqueeze(0), targets.unsqueeze(0)
        if seen == num_contexts:
            return
