"""The optimizer: SGD as AWD-LSTM uses it. Averaging is a callback's matter."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from lmkit.errors import require_at_least, require_count, require_positive
from lmkit.heads.head import Head


class SGDSettings:
    """SGD with an lr scaled by window length / bptt, clipping, and an lr of its own for transforms.

    Args:
        lr: of all parameters but the transform's.
        transform_lr: of the transform's parameters (LMS-PLIF's slopes: 0.02).
        weight_decay: of all parameters.
        clip: largest norm of the gradient of all parameters together.
        bptt: the window length at which the lr is `lr`.
    """

    def __init__(
        self, lr: float, transform_lr: float, weight_decay: float, clip: float, bptt: int
    ) -> None:
        require_positive("optimizer.lr", lr)
        require_positive("optimizer.transform_lr", transform_lr)
        require_at_least("optimizer.weight_decay", weight_decay, 0)
        require_positive("optimizer.clip", clip)
        require_count("windows.bptt", bptt)
        self.lr, self.transform_lr, self.weight_decay = lr, transform_lr, weight_decay
        self.clip, self.bptt = clip, bptt

    def build(self, head: Head, parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
        """The optimizer over all trainable `parameters`."""
        transform = [p for p in head.transform.parameters() if p.requires_grad]
        own = {id(p) for p in transform}
        rest = [p for p in parameters if p.requires_grad and id(p) not in own]
        groups = [{"params": rest, "lr": self.lr}]
        if transform:
            groups.append({"params": transform, "lr": self.transform_lr})
        return torch.optim.SGD(groups, lr=self.lr, weight_decay=self.weight_decay, fused=True)
