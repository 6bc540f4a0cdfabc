"""Makes the configured optimizer over a model's parameters. A callback averages the weights."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from lmkit.errors.user_error import (
    UserError,
    misfit,
    require_at_least,
    require_flag,
    require_list,
    require_positive,
    require_rate,
)
from lmkit.heads.head import Head

Named = tuple[str, nn.Parameter]  # a parameter and its name

# what the section `optimizer` makes: a class with its options, still without its (named) parameters
OptimizerFactory = Callable[[list[dict[str, Any]]], Optimizer]

_UNFIT = {
    torch.optim.LBFGS: "it computes a step's loss several times, and a window is read once",
    torch.optim.SparseAdam: "gradients are dense",
    torch.optim.ASGD: "its average would count nowhere: the trigger averages (trigger=from_start)",
}
_FLAGS = {
    "fused", "foreach", "nesterov", "amsgrad", "maximize", "centered", "capturable",
    "differentiable", "decoupled_weight_decay",
}  # fmt: skip


def make_optimizer(
    factory: OptimizerFactory, head: Head, parameters: Iterable[Named], transform_lr: float
) -> Optimizer:
    """The optimizer over all trainable `parameters`; the head's transform has an lr of its own."""
    transform = [(name, p) for name, p in head.transform.named_parameters() if p.requires_grad]
    own = {id(p) for _, p in transform}
    groups: list[dict[str, Any]] = [
        {"params": [(name, p) for name, p in parameters if p.requires_grad and id(p) not in own]}
    ]
    if transform:
        groups.append({"params": transform, "lr": transform_lr})
    optimizer = factory(groups)
    for group in optimizer.param_groups if transform else ():
        if group["lr"] != transform_lr and any(id(p) in own for p in group["params"]):
            raise UserError(
                f"optimizer={type(optimizer).__name__} makes groups of its own without the lr of "
                f"those that it is given: a transform learns at module.transform_lr={transform_lr}"
            )
    for group in optimizer.param_groups:
        group.pop("param_names", None)  # no part of a checkpoint
    return optimizer


def learning_rate(factory: OptimizerFactory) -> float:
    """The lr of the optimizer that `factory` makes; checks all of its options.

    Raises: UserError naming the option that is wrong.
    """
    given = [nn.Parameter(torch.zeros(size, device="cpu")) for size in ((1,), (1, 1))]
    try:
        made = factory([{"params": [("vector", given[0]), ("matrix", given[1])]}])
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise misfit(error, factory, "optimizer", ["params"]) from None
    except AttributeError as error:
        raise UserError(
            f"optimizer: {error}; its groups hold pairs of a parameter's name and the parameter"
        ) from None
    for kind, reason in _UNFIT.items():
        if isinstance(made, kind):
            raise UserError(f"optimizer={kind.__name__} cannot be taken: {reason}")
    unfit = None
    if Counter(p for group in made.param_groups for p in group["params"]) != Counter(given):
        unfit = "it takes other parameters than those that it is given, each once"
    elif not all("lr" in group for group in made.param_groups):
        unfit = "its groups of parameters have no lr, which schedule= scales"
    elif not _calls_closure(made):
        unfit = "its step must take a closure, which computes the loss, and call it once"
    if unfit is not None:
        raise UserError(f"optimizer={type(made).__name__} cannot be taken: {unfit}")
    group = made.param_groups[0]
    require_positive("optimizer.lr", group["lr"])
    require_at_least("optimizer.weight_decay", group.get("weight_decay", 0), 0)
    for flag in _FLAGS & group.keys():
        if isinstance(group[flag], str):  # PyTorch takes any text for true
            require_flag(f"optimizer.{flag}", group[flag])
    if group.get("differentiable"):
        raise UserError("optimizer.differentiable must be false: a step changes weights in place")
    return float(group["lr"])


def _calls_closure(optimizer: Optimizer) -> bool:
    """Whether its step does, once: each call reads the window, and goes on with the state."""
    called = []

    def closure() -> Any:  # a tensor, as Lightning's returns
        called.append(True)
        return torch.zeros(())

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer.step(closure=closure)
    except TypeError:  # it takes none
        return len(called) == 1
    except Exception:  # of zeros, with which it need not work
        return len(called) < 2
    return len(called) == 1


class AdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019) with weight decay on matrices only.

    Vectors (norms, a transform's slopes) and biases of any shape, whose names end in "bias",
    have their own group, without decay.

    Args:
        params: groups of named parameters; each is split in two where it holds both kinds.
        lr, betas, eps, weight_decay, fused: as of `torch.optim.AdamW`.
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float,
        betas: Sequence[float],
        eps: float,
        weight_decay: float,
        fused: bool,
    ) -> None:
        require_positive("optimizer.lr", lr)
        require_at_least("optimizer.weight_decay", weight_decay, 0)
        require_positive("optimizer.eps", eps)
        require_list("optimizer.betas", betas, "[0.9,0.999]")
        if len(betas) != 2:
            raise UserError(f"optimizer.betas must be two numbers, but is {list(betas)}")
        for i, beta in enumerate(betas):
            require_rate(f"optimizer.betas[{i}]", beta)
        split = []
        for group in params:
            matrices = [named for named in group["params"] if _decays(*named)]
            vectors = [named for named in group["params"] if not _decays(*named)]
            if matrices:
                split.append(group | {"params": matrices})
            if vectors:
                split.append(group | {"params": vectors, "weight_decay": 0.0})
        super().__init__(
            split,
            lr=lr,
            betas=(float(betas[0]), float(betas[1])),
            eps=eps,
            weight_decay=weight_decay,
            fused=fused,
        )


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.dim() > 1 and not name.endswith("bias")
