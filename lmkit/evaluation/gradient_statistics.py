"""How large a model's gradients are on its training text: the RMS for each weight.

Shapes: T window length, B batch.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import torch
from rich.progress import track
from torch import Tensor, nn

from lmkit.data.windows import EvalWindows, Window
from lmkit.errors.user_error import UserError
from lmkit.experiment.load import LoadedRun, as_language_model
from lmkit.heads.predictor import exact_evaluation, to_device
from lmkit.training.checkpoint_files import read_tensors, weights_sha256, write_tensors
from lmkit.training.language_model import LanguageModel
from lmkit.trunk.trunk import LayerState


class GradientStatistics(NamedTuple):
    """sqrt(1/num_batches sum over batches of gradient^2) by parameter (Krause et al. 2017)."""

    rms: dict[str, Tensor]
    num_batches: int


class Step(NamedTuple):
    """A window's loss, its gradients in the parameters' order, and the state after it."""

    nll: Tensor  # mean over the window's targets, nats
    grads: tuple[Tensor, ...]
    state: list[LayerState]


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that have gradients, by name, each once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def gradient_step(
    model: LanguageModel,
    window: Window,
    state: list[LayerState] | None,
    parameters: list[nn.Parameter],
) -> Step:
    """Loss and gradients of a window, predicted as in evaluation: no dropout, true float32. The
    trunk's LSTMs keep what cuDNN's backward pass needs even in evaluation mode.
    """
    window = to_device(window, model.device)
    with exact_evaluation(model, model.device.type), torch.enable_grad():
        state = state or model.trunk.initial_state(window.inputs_TB.shape[1])
        output = model.trunk(window.inputs_TB, state)
        nll = model.head.nll(model.head_input(output), window.targets_TB)
        grads = torch.autograd.grad(nll, parameters, materialize_grads=True)
    return Step(nll.detach(), grads, [(a.detach(), b.detach()) for a, b in output.state])


def gradient_statistics(model: LanguageModel, windows: EvalWindows) -> GradientStatistics:
    """One pass over the windows, state carried, with a progress bar."""
    parameters = trainable(model)
    squares = [torch.zeros_like(p) for p in parameters.values()]
    state = None
    for window in track(windows, "gradients on the training text", transient=True):
        _, grads, state = gradient_step(model, window, state, list(parameters.values()))
        torch._foreach_addcmul_(squares, grads, grads)
    rms = {n: (s / len(windows)).sqrt_() for n, s in zip(parameters, squares, strict=True)}
    return GradientStatistics(rms, len(windows))


def stored_statistics(run: LoadedRun, length: int, batch_size: int) -> GradientStatistics:
    """The statistics of a run's weights, read from its folder if computed before.

    They are kept in `analysis/gradients_<key>.pt`; the key is a digest of the weights, the training
    text and both sizes.

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
    key = digest.hexdigest()
    path = run.folder.analysis / f"gradients_{key[:12]}.pt"
    statistics = _read(path, key)
    if statistics is None:
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
    except (OSError, ValueError):
        return None
    except (KeyError, TypeError, AttributeError):  # other content
        return None
