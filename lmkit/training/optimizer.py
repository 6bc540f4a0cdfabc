"""Optimizers: SGD as AWD-LSTM uses it, and Adam. Averaging is a callback's matter."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from lmkit.errors.user_error import require_at_least, require_count, require_positive
from lmkit.heads.head import Head


class OptimizerSettings:
    """What optimizers share: clipping, weight decay, and an lr of its own for transforms.

    Args:
        lr: of all parameters but the transform's.
        transform_lr: of the transform's parameters (LMS-PLIF's slopes: 0.02).
        weight_decay: of all parameters.
        clip: largest norm of the gradient of all parameters together.
    """

    def __init__(self, lr: float, transform_lr: float, weight_decay: float, clip: float) -> None:
        require_positive("optimizer.lr", lr)
        require_positive("optimizer.transform_lr", transform_lr)
        require_at_least("optimizer.weight_decay", weight_decay, 0)
        require_positive("optimizer.clip", clip)
        self.lr, self.transform_lr, self.weight_decay = lr, transform_lr, weight_decay
        self.clip = clip

    def build(self, head: Head, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer over all trainable `parameters`."""
        raise NotImplementedError

    def lr_scale(self, length: int) -> float:
        """By what the lr of a batch of that length is multiplied."""
        raise NotImplementedError

    def _groups(self, head: Head, parameters: Iterable[nn.Parameter]) -> list[dict]:
        transform = [p for p in head.transform.parameters() if p.requires_grad]
        own = {id(p) for p in transform}
        rest = [p for p in parameters if p.requires_grad and id(p) not in own]
        groups = [{"params": rest, "lr": self.lr}]
        if transform:
            groups.append({"params": transform, "lr": self.transform_lr})
        return groups


class SGDSettings(OptimizerSettings):
    """SGD with an lr scaled by window length / bptt, as the AWD-LSTM authors' code has it.

    Args:
        bptt: the window length at which the lr is `lr`.
        lr, transform_lr, weight_decay, clip: see `OptimizerSettings`.
    """

    def __init__(
        self, lr: float, transform_lr: float, weight_decay: float, clip: float, bptt: int
    ) -> None:
        super().__init__(lr, transform_lr, weight_decay, clip)
        require_count("windows.bptt", bptt)
        self.bptt = bptt

    def build(self, head: Head, parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
        groups = self._groups(head, parameters)
        return torch.optim.SGD(groups, lr=self.lr, weight_decay=self.weight_decay, fused=True)

    def lr_scale(self, length: int) -> float:
        return length / self.bptt


class AdamSettings(OptimizerSettings):
    """Adam (Kingma and Ba 2015) with its default decay rates; the lr is the same for all batches.

    Args: see `OptimizerSettings`.
    """

    def build(self, head: Head, parameters: Iterable[nn.Parameter]) -> torch.optim.Adam:
        groups = self._groups(head, parameters)
        return torch.optim.Adam(groups, lr=self.lr, weight_decay=self.weight_decay)

    def lr_scale(self, length: int) -> float:
        return 1.0
