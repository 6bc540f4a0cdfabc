"""How much of the loss gradient a head passes on to its contexts, and what a step does with it.

The gradient with respect to the logits g (V) reaches a context vector as W^T g, so that only its
part in the column space of W gets through: ||Q Q^T g|| / ||g|| with Q = orth(W).

Godey and Artzi 2026 (arXiv 2603.10145): with logits L = H W', the loss falls fastest along -G, G =
dloss/dL, whose rank is as high as the data's. A step of gradient descent on H and W changes L, to
first order, by -(G W W' + H H' G), of rank 2 E at most, and nearly orthogonal to -G.

lmkit measures the same for every head on log P, which equals the logits up to a constant per row. U
is the first-order change of log P over N contexts when each of the head's inputs and parameters
moves against its gradient of the mean nll, all at one rate. For a linear head the normaliser adds
one to the rank, and a trained bias another: 2 E + 2. G = P - onehot(target).

Rows of G sum to zero, so for the cosine with -G each row of U is centred first, which removes the
normaliser's constants. A step that moves the logits along -G has cosine 1, whatever V and P.

Shapes: N contexts, n of a block, D trunk output, E embedding, K components, R rank of the decoder's
weight, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head
from lmkit.heads.predictor import Predictor, exact_evaluation, trainable
from lmkit.measures.contexts import ContextBlock, context_blocks
from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.measures import measure


class LogitUpdate(NamedTuple):
    """The change of log P by a step of gradient descent."""

    update_contexts: int  # N
    update_rank: int | None  # Press rank of U; None where it is not resolved
    update_bound: int | None  # upper bound of the rank; None: not known for this head
    update_cosine: float  # between U, each row centred, and -G, as vectors of N V numbers


class _LogProbs(nn.Module):
    """A head as a module whose forward is log P, for `functional_call`."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden_1nD: Tensor) -> Tensor:
        return self.head.log_probs(hidden_1nD)


def logit_update(head: Head, blocks: Sequence[ContextBlock]) -> LogitUpdate:
    """The change of log P over all contexts of the blocks, at least one.

    The head is in evaluation mode, and autocast is off. The parameters' gradients stay unchanged.
    """
    num_contexts = sum(block.targets_1N.numel() for block in blocks)
    moves, of_parameters = _descent(head, blocks, num_contexts)
    rows, inner, of_update, of_gradient = [], 0.0, 0.0, 0.0
    for (hidden_1nD, targets_1n), move_1nD in zip(blocks, moves, strict=True):
        log_p_nV, update_nV = _moved(head, hidden_1nD, move_1nD, of_parameters)
        gradient_nV = log_p_nV.exp_()
        targets_n1 = targets_1n.reshape(-1, 1)
        gradient_nV.scatter_add_(1, targets_n1, gradient_nV.new_full(targets_n1.shape, -1))
        rows.append(update_nV)
        centred_nV = update_nV - update_nV.double().mean(dim=1, keepdim=True)
        inner -= float((centred_nV * gradient_nV).sum())
        of_update += float(centred_nV.square_().sum())
        of_gradient += float(gradient_nV.double().square().sum())
    update_NV = torch.cat(rows)
    norms = (of_update * of_gradient) ** 0.5
    return LogitUpdate(
        num_contexts,
        _rank(update_NV),
        min(_factors(head), *update_NV.shape) if head.has_factors else None,
        inner / norms if norms else float("nan"),
    )


def _descent(
    head: Head, blocks: Sequence[ContextBlock], num_contexts: int
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Minus the gradients of the mean nll: of each block's inputs, and of the parameters."""
    parameters = trainable(head)
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    moves = []
    for hidden_1nD, targets_1n in blocks:
        inputs = hidden_1nD.detach().requires_grad_()
        with torch.enable_grad():
            nll = head.nll(inputs, targets_1n) * (targets_1n.numel() / num_contexts)
            of_inputs, *others = torch.autograd.grad(
                nll, [inputs, *parameters.values()], materialize_grads=True
            )
        moves.append(-of_inputs)
        for name, gradient in zip(total, others, strict=True):
            total[name] -= gradient
    return moves, total


def _moved(
    head: Head, hidden_1nD: Tensor, move_1nD: Tensor, moves: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """log P (n, V), and its derivative along the moves of the inputs and of the parameters."""
    parameters = trainable(head)
    # no gradient is needed, but with gradients enabled a head uses products that PyTorch can
    # differentiate in forward mode
    with forward_ad.dual_level(), torch.enable_grad():
        moved = {
            f"head.{name}": forward_ad.make_dual(p.detach(), moves[name])  # type: ignore[no-untyped-call]
            for name, p in parameters.items()
        }
        inputs = forward_ad.make_dual(hidden_1nD.detach(), move_1nD)  # type: ignore[no-untyped-call]
        rows_nV = functional_call(_LogProbs(head), moved, (inputs,))
        log_p_nV, update_nV = forward_ad.unpack_dual(rows_nV)  # type: ignore[no-untyped-call]
    return log_p_nV.detach().clone(), update_nV.detach().clone()


def _factors(head: Head) -> int:
    """The rank's bound: E from the contexts, E from the weight and 1 from the bias if they train, 1
    from the normaliser. E is r where the decoder's rank is limited.
    """
    weight, bias = (p.requires_grad for p in (head.decoder_weight, head.decoder_bias))
    return head.decoder_weight.shape[1] * (1 + weight) + bias + 1


def _rank(update_NV: Tensor) -> int | None:
    """Press rank, from the Gram matrix of the smaller side in float64."""
    num_rows, num_columns = update_NV.shape
    gram = GramAccumulator(min(update_NV.shape), update_NV.device)
    gram.add(update_NV if num_rows >= num_columns else update_NV.T)
    values = gram.singular_values()
    return measure(values, num_rows, num_columns, update_NV.dtype, "gram").press_rank


UPDATE_CONTEXTS = 2000  # at most, whose change by a step is measured


class Bottleneck(NamedTuple):
    """The gradient bottleneck of a head: its `LogitUpdate`, and shares ||Q Q^T g|| / ||g||.

    What concerns the shares is None where the logits are not products of contexts with one decoder.
    """

    num_contexts: int
    num_words: int
    update_contexts: int
    update_rank: int | None
    update_bound: int | None
    update_cosine: float
    num_components: int | None = None  # K: each has its own logits, and so its own gradient
    decoder_rank: int | None = None
    share: float | None = None  # of all gradients as one vector; 1 - share of the norm is lost
    mean_share: float | None = None  # mean over contexts and components
    low_share: float | None = None  # 5 % of them are lower
    high_share: float | None = None  # 5 % of them are higher
    isotropic_share: float | None = None  # sqrt(R / V): of a gradient of random direction


def model_bottleneck(model: Predictor, windows: Iterable[Batch], num_contexts: int) -> Bottleneck:
    """The gradient bottleneck over the first `num_contexts` contexts, without dropout.

    Draws no random numbers and leaves the parameters' gradients unchanged.
    """
    head = model.head
    basis_VR = orthonormal_basis(head.decoder_weight) if head.has_plain_logits else None
    norms: list[Tensor] = []  # of what gets through, and of the whole
    first: list[ContextBlock] = []
    free = UPDATE_CONTEXTS
    for hidden_1ND, targets_1N in context_blocks(model, windows, num_contexts):
        if basis_VR is not None:
            with exact_evaluation(model):
                gradient_NKV = logit_gradients(head, hidden_1ND, targets_1N)
                gradient_NV = gradient_NKV.flatten(0, 1).to(basis_VR)
                both = (gradient_NV @ basis_VR, gradient_NV)  # ||Q^T g|| = ||Q Q^T g||
                norms.append(torch.stack([torch.linalg.vector_norm(each, dim=1) for each in both]))
        if free > 0:
            first.append(ContextBlock(hidden_1ND[:, :free], targets_1N[:, :free]))
            free -= targets_1N.numel()
    with exact_evaluation(model):
        update = logit_update(head, first)
    found = Bottleneck(num_contexts, len(head.decoder_bias), *update)
    if basis_VR is None:
        return found
    return _with_shares(found, basis_VR.shape[1], *torch.cat(norms, dim=1))


def orthonormal_basis(weight_VE: Tensor) -> Tensor:
    """Q (V, R), float64: an orthonormal basis of the column space of the decoder's weight.

    Directions with singular values at most sqrt(E) eps sigma_1, eps of the weight's own dtype,
    count as absent: rounding the entries makes none larger.
    """
    left_VE, values_E, _ = torch.linalg.svd(weight_VE.detach().double(), full_matrices=False)
    tolerance = weight_VE.shape[1] ** 0.5 * torch.finfo(weight_VE.dtype).eps
    basis_VR: Tensor = left_VE[:, values_E > tolerance * values_E[0]]
    return basis_VR


def _with_shares(found: Bottleneck, rank: int, passed_N: Tensor, whole_N: Tensor) -> Bottleneck:
    shares_N = passed_N / whole_N
    finite = shares_N[shares_N.isfinite()]  # NaN: a gradient of 0
    if not len(finite):
        raise UserError(
            f"the loss has no gradient at any of the {found.num_contexts:,} contexts, of which a "
            f"share could pass"
        )
    low, high = np.quantile(finite.cpu().numpy(), [0.05, 0.95]).tolist()
    return found._replace(
        num_components=len(shares_N) // found.num_contexts,
        decoder_rank=rank,
        share=float(torch.linalg.vector_norm(passed_N) / torch.linalg.vector_norm(whole_N)),
        mean_share=float(finite.mean()),
        low_share=low,
        high_share=high,
        isotropic_share=(rank / found.num_words) ** 0.5,
    )


def logit_gradients(head: Head, hidden_1ND: Tensor, targets_1N: Tensor) -> Tensor:
    """Gradients (N, K, V) of the targets' summed nll with respect to the untransformed logits."""
    targets_N1 = targets_1N.reshape(-1, 1)
    log_prior_NK, context_NKE = head.contexts(hidden_1ND)
    logits = head.logits(context_NKE.flatten(0, 1)).detach().requires_grad_()
    with torch.enable_grad():
        log_p_NV = head.mixed(log_prior_NK.detach(), logits)
        nll_N1 = -log_p_NV.gather(1, targets_N1)
        (gradient,) = torch.autograd.grad(nll_N1.sum(), logits)
    gradient_NKV: Tensor = gradient.view(*log_prior_NK.shape, -1)
    return gradient_NKV
