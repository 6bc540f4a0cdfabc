"""Makes the configured optimizer over a model's parameters. A callback does the averaging."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lmkit.errors.user_error import require_at_least, require_positive
from lmkit.heads.head import Head
from lmkit.training.misfit import misfit

# what the section `optimizer` makes: a class with its options, still without parameters
OptimizerFactory = Callable[[list[dict[str, Any]]], Optimizer]


def make_optimizer(
    factory: OptimizerFactory, head: Head, parameters: Iterable[nn.Parameter], transform_lr: float
) -> Optimizer:
    """The optimizer over all trainable `parameters`; the head's transform has an lr of its own."""
    transform = [p for p in head.transform.parameters() if p.requires_grad]
    own = {id(p) for p in transform}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.requires_grad and id(p) not in own]}
    ]
    if transform:
        groups.append({"params": transform, "lr": transform_lr})
    return factory(groups)


def learning_rate(factory: OptimizerFactory) -> float:
    """The lr of the optimizer that `factory` makes, once all of its options are checked.

    Raises: UserError naming the option that is wrong.
    """
    one = nn.Parameter(torch.zeros(1, device="cpu"))
    try:
        (group,) = factory([{"params": [one]}]).param_groups
    except (TypeError, ValueError) as error:
        raise misfit(error, factory, "optimizer", ["params"]) from None
    require_positive("optimizer.lr", group["lr"])
    require_at_least("optimizer.weight_decay", group.get("weight_decay", 0), 0)
    return float(group["lr"])
