"""Dynamic evaluation (Krause, Kahembwe, Murray and Renals 2017, RMS with decay towards the start).

Shapes: T segment length, B batch (here 1).

The text is predicted segment by segment, each with the weights that those before it have left:

    theta <- theta + decay (theta_0 - theta) RMS / mean(RMS) - lr grad / (RMS + epsilon)

theta_0 are the trained weights, grad is the gradient of the segment's mean loss, RMS that of the
gradients on the training text (`gradient_statistics`), mean(RMS) the mean over tensors of their
means. As in the authors' code, the decay of a weight is at most 1, which restores it fully.

The first version of that code, which Yang et al. 2018 used (their table 8), took the root of the
sum of grad^2 as RMS, which is sqrt(num_batches) times as much, and divided by the sum over tensors
instead of the mean. So its lr and epsilon are sqrt(num_batches) times the formula's, and its decay
is num_tensors times the formula's. As there the model is in evaluation mode; a later port for MoS
leaves it in training mode, with DropConnect on.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmkit.data.windows import EvalWindows, Window
from lmkit.errors.user_error import (
    UserError,
    require_at_least,
    require_choice,
    require_count,
    require_positive,
)
from lmkit.evaluation.method import Method, SearchPoint, require_values
from lmkit.experiment.load import LoadedRun, as_language_model, own_classes
from lmkit.heads.predictor import exact_evaluation, to_device, trainable
from lmkit.measures.perplexity import Perplexity, as_perplexity, safe_exp
from lmkit.presentation.progress import tracked
from lmkit.runs.atomic import make_folder
from lmkit.runs.source import source_sha256
from lmkit.training.checkpoint_files import read_tensors, weights_sha256, write_tensors
from lmkit.training.language_model import LanguageModel
from lmkit.trunk.trunk import LayerState

_CHECKED = 100  # segments between two looks at whether the weights are finite


class GradientStatistics(NamedTuple):
    """sqrt(1/num_batches sum over batches of gradient^2) by parameter (Krause et al. 2017)."""

    rms: dict[str, Tensor]
    num_batches: int


def gradient_step(
    model: LanguageModel,
    window: Window,
    state: list[LayerState] | None,
    parameters: list[nn.Parameter],
) -> tuple[Tensor, tuple[Tensor, ...], list[LayerState]]:
    """A window's mean loss in nats, its gradients in the parameters' order, and the state after it.

    It is predicted as in evaluation: no dropout, true float32. The trunk's LSTMs keep what cuDNN's
    backward pass needs even in evaluation mode.
    """
    window = to_device(window, model.device)
    with exact_evaluation(model), torch.enable_grad():
        state = state or model.trunk.initial_state(window.inputs_TB.shape[1])
        output = model.trunk(window.inputs_TB, state)
        nll = model.head.nll(model.head_input(output), window.targets_TB)
        grads = torch.autograd.grad(nll, parameters, materialize_grads=True)
    return nll.detach(), grads, [(a.detach(), b.detach()) for a, b in output.state]


def gradient_statistics(model: LanguageModel, windows: EvalWindows) -> GradientStatistics:
    """One pass over the windows, state carried, with a progress bar."""
    parameters = trainable(model)
    squares = [torch.zeros_like(p) for p in parameters.values()]
    state = None
    for window in tracked(windows, "gradients on the training text"):
        _, grads, state = gradient_step(model, window, state, list(parameters.values()))
        torch._foreach_addcmul_(squares, grads, grads)
    rms = {n: (s / len(windows)).sqrt_() for n, s in zip(parameters, squares, strict=True)}
    return GradientStatistics(rms, len(windows))


def stored_statistics(run: LoadedRun, length: int, batch_size: int) -> GradientStatistics:
    """The statistics of a run's weights, read from its folder if computed before.

    They are kept in `analysis/gradients_<key>.pt`; the key is a digest of the weights, the training
    text, both sizes and the sources, as they are now, of classes of the user's own.

    Raises: UserError naming `method.batch_size` when the training text is too short for it.
    """
    model, data = as_language_model(run)
    train = data.corpus.train
    if len(train) < 2 * batch_size:
        raise UserError(
            f"a training text of {len(train)} tokens is too short for {batch_size} columns; choose "
            f"a smaller method.batch_size"
        )
    digest = hashlib.sha256(f"1 {length} {batch_size}".encode())
    digest.update(train.tobytes())
    digest.update(weights_sha256(trainable(model)).encode())
    for target in own_classes(run.folder):
        digest.update(str(source_sha256(target)).encode())
    key = digest.hexdigest()
    path = run.folder.analysis / f"gradients_{key[:12]}.pt"
    statistics = _read(path, key)
    if statistics is None:
        make_folder(path.parent)  # before what takes long
        windows = EvalWindows(data.corpus.columns("train", batch_size), length)
        statistics = gradient_statistics(model, windows)
        write_tensors(path, {"key": key, **statistics._asdict()})
    rms = {name: value.to(model.device) for name, value in statistics.rms.items()}
    return statistics._replace(rms=rms)


def _read(path: Path, key: str) -> GradientStatistics | None:
    """What was stored under that key; None if nothing readable was."""
    try:
        content = read_tensors(path)
        if content.pop("key") != key:
            return None
        return GradientStatistics(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # or it has other content
        return None


class Rates(NamedTuple):
    """The hyperparameters of the formula above."""

    lr: float
    decay: float
    epsilon: float

    def from_code(self, statistics: GradientStatistics) -> Rates:
        """The formula's rates, from rates in the convention of the code's first version."""
        root = math.sqrt(statistics.num_batches)
        return Rates(self.lr / root, self.decay / len(statistics.rms), self.epsilon / root)


class Adaptation:
    """A model's weights as they adapt to a text; `reset` restores the trained ones."""

    def __init__(self, model: LanguageModel, statistics: GradientStatistics, rates: Rates) -> None:
        parameters = trainable(model)
        self.parameters = list(parameters.values())
        self.values = [p.data for p in self.parameters]
        self.trained = [value.clone() for value in self.values]
        rms = [statistics.rms[name] for name in parameters]
        mean = torch.stack([r.mean() for r in rms]).mean()
        self.decays = [(rates.decay / mean * r).clamp_(max=1) for r in rms]
        self.steps = [rates.lr / (r + rates.epsilon) for r in rms]

    def update(self, grads: Sequence[torch.Tensor]) -> None:
        """One step of the formula."""
        torch._foreach_lerp_(self.values, self.trained, self.decays)
        torch._foreach_addcmul_(self.values, list(grads), self.steps, value=-1)

    def reset(self) -> None:
        """Back to the trained weights."""
        torch._foreach_copy_(self.values, self.trained)


@dataclass(kw_only=True, eq=False)
class Dynamic(Method):
    """Dynamic evaluation."""

    kind = "dynamic"

    lr: float  # eta, lambda and epsilon of the formula above
    decay: float
    epsilon: float
    convention: str  # of these rates: "paper", the formula; "code", the code's first version
    length: int  # tokens of a segment, between two steps, and of the statistics' windows
    batch_size: int  # columns of the training text, for the statistics
    lr_grid: Sequence[float]  # of a search, same convention
    decay_grid: Sequence[float]

    def __post_init__(self) -> None:
        at_least_0 = partial(require_at_least, minimum=0)
        require_values("lr", self.lr, self.lr_grid, at_least_0)
        require_values("decay", self.decay, self.decay_grid, at_least_0)
        require_positive("method.epsilon", self.epsilon)
        require_choice("method.convention", self.convention, ("paper", "code"))
        require_count("method.length", self.length)
        require_count("method.batch_size", self.batch_size)

    def measure(self, run: LoadedRun, split: str) -> Perplexity:
        model, data = as_language_model(run)
        windows = data.one_column(split, length=self.length)
        statistics = stored_statistics(run, self.length, self.batch_size)
        nll = self._nll(model, statistics, tracked(windows, f"{split} perplexity"))
        return as_perplexity(nll / windows.num_targets, windows.num_targets)

    def search(self, run: LoadedRun, windows: EvalWindows) -> list[SearchPoint]:
        model, _ = as_language_model(run)
        statistics = stored_statistics(run, self.length, self.batch_size)
        points, found = list(self.points()), []
        shown = tracked(list(windows) * len(points), "search on valid")
        for point in points:
            its_windows = islice(shown, len(windows))
            nll = self.at(point)._nll(model, statistics, its_windows)
            deque(its_windows, maxlen=0)  # those that a point that diverges leaves
            found.append(SearchPoint(point, safe_exp(nll / windows.num_targets)))
        return found

    def _nll(
        self, model: LanguageModel, statistics: GradientStatistics, windows: Iterable[Window]
    ) -> float:
        """Summed over all targets, nats."""
        rates = Rates(self.lr, self.decay, self.epsilon)
        rates = rates.from_code(statistics) if self.convention == "code" else rates
        return float(segment_nlls(model, windows, Adaptation(model, statistics, rates)).sum())


def segment_nlls(
    model: LanguageModel, windows: Iterable[Window], adaptation: Adaptation
) -> torch.Tensor:
    """Each segment's negative log-likelihood, summed over its targets, float64 nats.

    A segment is scored before the weights adapt to it. Afterwards the weights are as trained, even
    after an error. Weights that are not finite stay so: then what follows is left out.
    """
    nlls: list[torch.Tensor] = []
    state = None
    try:
        for window in windows:
            nll, grads, state = gradient_step(model, window, state, adaptation.parameters)
            nlls.append(nll.double() * window.targets_TB.numel())
            if len(nlls) % _CHECKED == 0 and not nll.isfinite():
                break
            adaptation.update(grads)
    finally:
        adaptation.reset()
    return torch.stack(nlls).cpu()
