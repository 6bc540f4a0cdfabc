"""The softmax nearest to log P: how much of a rank no softmax of some dimension has.

Log P of a softmax of dimension D is C W^T + b less a normaliser a row, of rank at most D + 2 (Yang
et al. 2018, section 2.1, with a bias). Its distance from any P is

    min over C (N, D), W (V, D) and b (V,) of the mean of KL(P_n || softmax(W C_n + b)), in nats,

where the contexts C are free, as those of the universal approximator in their proposition 1: no
trunk limits them. The minimum is sought by L-BFGS from the truncated SVD of log P, so that what is
found is an upper bound. Where it is small, a softmax of dimension D can be all that P is, whatever
the rank of log P. W and b have seen these N rows; where the least over the C of other rows, with
that W and b, is small too, they are near to the model and not to these rows alone.

Shapes: N contexts, n of a block, V vocabulary, D dimension.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, nll_loss

from lmkit.spectra.gram import require_rows

BLOCK_ROWS = 256  # fit into a processor's cache
ROUND, HISTORY = 10, 20  # iterations between two looks at the progress; pairs that L-BFGS keeps
SLOW, EXACT = 0.003, 1e-7  # a round's share, and nats, below which it ends
POWERS = 4  # iterations of the randomised SVD


class NearestSoftmax(NamedTuple):
    """Means over contexts."""

    divergence: float  # KL from P, nats
    nll: float  # of the words that follow, nats
    own_nll: float  # the same, of P
    iterations: int  # at most
    weight_VD: Tensor
    bias_V: Tensor


def nearest_softmax(
    log_probs_NV: Tensor,
    targets_N: Tensor,
    dim: int,
    iterations: int,
    step: Callable[[int], object] = lambda done: None,
) -> NearestSoftmax:
    """The nearest that L-BFGS finds.

    Args:
        dim: D, less than N and V.
        iterations: at most; it ends before once ten of them bring less than 0.3 %.
        step: called with the number of iterations that are done.

    Raises: UserError naming an entry that is not finite.
    """
    require_rows(log_probs_NV, log_probs_NV.shape[1], 0)
    log_p_NV = torch.log_softmax(log_probs_NV.double(), dim=1)
    softmax = _truncated(log_p_NV, dim)
    divergence, done = _minimise(
        softmax, lambda: divergence_and_gradients(log_p_NV, *softmax), iterations, step
    )
    nll, own_nll = _nll(targets_N, *softmax), float(nll_loss(log_p_NV, targets_N))
    return NearestSoftmax(divergence, nll, own_nll, done, *softmax[1:])


def nearest_contexts(
    log_probs_NV: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor,
    iterations: int,
    step: Callable[[int], object] = lambda done: None,
) -> tuple[float, int]:
    """The mean KL divergence, nats, of the nearest softmax with this decoder, which only contexts
    are fitted for, a convex problem; and the iterations.

    Args:
        iterations, step: as for the nearest softmax of all.

    Raises: UserError naming an entry that is not finite.
    """
    require_rows(log_probs_NV, log_probs_NV.shape[1], 0)
    log_p_NV = torch.log_softmax(log_probs_NV.double(), dim=1)
    logits_NV = log_p_NV - log_p_NV.mean(dim=1, keepdim=True) - (bias_V - bias_V.mean())
    centred_VD = weight_VD - weight_VD.mean(dim=0)  # each row of logits has a constant of its own
    contexts_ND = torch.linalg.lstsq(centred_VD, logits_NV.T).solution.T.contiguous()

    def over_contexts() -> tuple[Tensor, tuple[Tensor, ...]]:
        divergence, gradients = divergence_and_gradients(log_p_NV, contexts_ND, weight_VD, bias_V)
        return divergence, gradients[:1]

    return _minimise([contexts_ND], over_contexts, iterations, step)


def _minimise(
    parameters: list[Tensor],
    divergence: Callable[[], tuple[Tensor, tuple[Tensor, ...]]],
    iterations: int,
    step: Callable[[int], object],
) -> tuple[float, int]:
    """The least divergence that L-BFGS finds by changing the parameters, and its iterations.

    Args:
        divergence: of the parameters as they are, and its gradients by them.
    """
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=ROUND,  # fewer where its line searches take more than 12 evaluations
        history_size=HISTORY,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        value, gradients = divergence()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return value

    done, best = 0, float(divergence()[0])
    while done < iterations and best > EXACT:
        optimizer.param_groups[0]["max_iter"] = asked = min(ROUND, iterations - done)
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        done += asked
        step(done)
        before, best = best, float(divergence()[0])
        if before - best < SLOW * best:
            break
    return max(best, 0.0), done


def working_bytes(num_rows: int, num_columns: int, dim: int) -> int:
    """Peak memory, in bytes, with log P in float32 as it is given and its blocks before."""
    matrices = (4 + 4 + 8 + 8 + 8) * num_rows * num_columns
    return matrices + 8 * (2 * HISTORY + 8) * (num_rows + num_columns) * dim


@torch.no_grad()
def divergence_and_gradients(
    log_p_NV: Tensor, contexts_ND: Tensor, weight_VD: Tensor, bias_V: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """The mean of KL(P || softmax(C W^T + b)), and its gradients by C, W and b."""
    gradient_ND, gradient_VD = torch.empty_like(contexts_ND), torch.zeros_like(weight_VD)
    gradient_V, divergence = torch.zeros_like(bias_V), bias_V.new_zeros(())
    for start in range(0, len(log_p_NV), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        log_p_nV, contexts_nD = log_p_NV[rows], contexts_ND[rows]
        p_nV = log_p_nV.exp()
        log_q_nV = torch.log_softmax(torch.addmm(bias_V, contexts_nD, weight_VD.T), dim=1)
        divergence += (p_nV * (log_p_nV - log_q_nV)).sum()
        by_logits_nV = log_q_nV.exp_().sub_(p_nV).div_(len(log_p_NV))
        gradient_ND[rows] = by_logits_nV @ weight_VD
        gradient_VD.addmm_(by_logits_nV.T, contexts_nD)
        gradient_V += by_logits_nV.sum(0)
    return divergence / len(log_p_NV), (gradient_ND, gradient_VD, gradient_V)


def _truncated(log_p_NV: Tensor, dim: int) -> list[Tensor]:
    """C, W and b from the SVD of log P without the means of its rows and columns. Of a softmax of
    that dimension they are its own, but for a change of basis.
    """
    centred_NV = log_p_NV - log_p_NV.mean(dim=1, keepdim=True)
    bias_V = centred_NV.mean(dim=0)
    centred_NV -= bias_V
    with torch.random.fork_rng([log_p_NV.device] if log_p_NV.is_cuda else []):
        torch.manual_seed(0)
        left_ND, values_D, right_VD = torch.svd_lowrank(centred_NV, dim, niter=POWERS)
    return [left_ND * values_D.sqrt(), right_VD * values_D.sqrt(), bias_V]


@torch.no_grad()
def _nll(targets_N: Tensor, contexts_ND: Tensor, weight_VD: Tensor, bias_V: Tensor) -> float:
    """The mean negative log likelihood of the words that follow, by the softmax."""
    total = 0.0
    for start in range(0, len(targets_N), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        logits_nV = torch.addmm(bias_V, contexts_ND[rows], weight_VD.T)
        total += float(cross_entropy(logits_nV, targets_N[rows], reduction="sum"))
    return total / len(targets_N)
