"""The continuous cache pointer (Grave, Joulin and Usunier 2017).

Shapes: T window length, B batch (here 1), D trunk output, n contexts of a block, M contexts known
to it (remembered, then its own), S settings.

The cache holds the last contexts h_i, each with the word x_{i+1} that followed. From those similar
to h_t it predicts

    p_cache(w | t) ~ sum_{i < t} 1{x_{i+1} = w} exp(theta h_t . h_i)

and is mixed with the model: p = (1 - weight) p_model + weight p_cache. It needs only the head's
input and p_model of the targets, so it works with any head. It is used from the second word of the
text on; the AWD-LSTM authors' program predicts the first `window` words without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lmkit.data.windows import Batch, EvalWindows
from lmkit.errors.user_error import require_count, require_positive, require_rate
from lmkit.evaluation.method import Method, SearchPoint, require_values
from lmkit.experiment.load import LoadedRun, as_language_model
from lmkit.heads.predictor import exact_evaluation
from lmkit.measures.perplexity import Perplexity, as_perplexity, safe_exp
from lmkit.presentation.progress import tracked
from lmkit.training.head_module import HeadModule

BLOCK = 70  # contexts predicted at once; changes only the order of summation


@dataclass(kw_only=True, eq=False)
class Cache(Method):
    """The cache pointer."""

    kind, length = "cache", BLOCK

    window: int  # contexts that are remembered
    theta: float  # inverse temperature of the similarity
    weight: float  # lambda, the cache's weight in the mixture; 0: only the model
    window_grid: Sequence[int]  # of a search
    theta_grid: Sequence[float]
    weight_grid: Sequence[float]

    def __post_init__(self) -> None:
        require_values("window", self.window, self.window_grid, require_count)
        require_values("theta", self.theta, self.theta_grid, require_positive)
        require_values("weight", self.weight, self.weight_grid, require_rate)

    def measure(self, run: LoadedRun, split: str) -> Perplexity:
        _, data = as_language_model(run)
        windows = data.one_column(split, length=BLOCK)
        (nll,) = mean_nlls(run.model, windows, [self], f"{split} perplexity")
        return as_perplexity(nll, windows.num_targets)

    def search(self, run: LoadedRun, windows: EvalWindows) -> list[SearchPoint]:
        points = list(self.points())
        settings = [self.at(point) for point in points]
        nlls = mean_nlls(run.model, windows, settings, "search on valid")
        return [SearchPoint(*each) for each in zip(points, map(safe_exp, nlls), strict=True)]


def mean_nlls(
    model: HeadModule, windows: EvalWindows, settings: Sequence[Cache], name: str
) -> list[float]:
    """Mean negative log-likelihood of all targets in each setting, nats; one pass, with a progress
    bar."""
    total = torch.zeros(len(settings), dtype=torch.float64)
    for nll_Sn in token_nlls(model, tracked(windows, name), settings):
        total += nll_Sn.double().sum(1).cpu()
    means: list[float] = (total / windows.num_targets).tolist()
    return means


def token_nlls(
    model: HeadModule, windows: Iterable[Batch], settings: Sequence[Cache]
) -> Iterator[Tensor]:
    """Negative log-likelihoods (S, n) of each window's targets in each setting, nats.

    The windows are those of one column (B = 1).
    """
    longest = max(setting.window for setting in settings)
    keys_MD = words_M = None
    for hidden_TBD, targets_TB in model.head_inputs(windows):
        hidden_nD, targets_n = hidden_TBD[:, 0], targets_TB[:, 0]
        known = 0 if keys_MD is None else len(keys_MD)
        keys_MD = hidden_nD if keys_MD is None else torch.cat([keys_MD, hidden_nD])
        words_M = targets_n if words_M is None else torch.cat([words_M, targets_n])
        with exact_evaluation(model):
            log_model_n = -model.head.token_nll(hidden_TBD, targets_TB)[:, 0]
            scores_nM = hidden_nD @ keys_MD.T
        age_nM = known + torch.arange(len(hidden_nD), device=scores_nM.device).unsqueeze(1)
        age_nM = age_nM - torch.arange(len(keys_MD), device=scores_nM.device)
        followed_nM = words_M == targets_n.unsqueeze(1)
        yield -_mixed(log_model_n, scores_nM, age_nM, followed_nM, settings)
        keys_MD, words_M = keys_MD[-longest:], words_M[-longest:]


def _mixed(
    log_model_n: Tensor,
    scores_nM: Tensor,
    age_nM: Tensor,
    followed_nM: Tensor,
    settings: Sequence[Cache],
) -> Tensor:
    """log p (S, n) of the targets. `age_nM` counts contexts back: the cache's are 1 to window."""
    log_cache: dict[tuple[int, float], Tensor] = {}
    is_empty_n = (age_nM < 1).all(dim=1)  # nothing is known before the first word
    rows = []
    for each in settings:
        key = each.window, each.theta
        if key not in log_cache:
            known_nM = (age_nM >= 1) & (age_nM <= each.window)
            likeness_nM = (each.theta * scores_nM).masked_fill(~known_nM, -torch.inf)
            of_target_n = likeness_nM.masked_fill(~followed_nM, -torch.inf).logsumexp(1)
            log_cache[key] = of_target_n - likeness_nM.logsumexp(1)
        log_weight = math.log(each.weight) if each.weight else -math.inf
        mixed_n = torch.logaddexp(
            log_model_n + math.log1p(-each.weight), log_cache[key] + log_weight
        )
        rows.append(torch.where(is_empty_n, log_model_n, mixed_n))
    return torch.stack(rows)
