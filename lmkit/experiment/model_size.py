"""Parameters, bytes and FLOPs of a model's trunk and head, without running it; a machine's FLOP/s.

FLOPs are those of the matrix products for one token, two for each multiply-add, as PyTorch counts
them (`torch.utils.flop_counter`) on the meta device, which has shapes and no numbers. Lookups,
nonlinearities, dropout and softmax are not counted.
"""

import math
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from lmkit.errors.user_error import UserError
from lmkit.experiment.make import Section
from lmkit.experiment.objects import make_model
from lmkit.runs.provenance import usable_cores
from lmkit.training.head_module import HeadModule
from lmkit.training.language_model import LanguageModel

SHARE = 0.4  # of a matrix product's speed that training reaches, roughly
_SIDE = 1024  # of the timed matrices
_TIMED_S = 0.5


class Size(NamedTuple):
    """The size of a model, or of a part of it."""

    trainable: int  # parameters
    parameters: int
    num_bytes: int  # of the parameters
    forward_flops: int | None  # for a token; None: not known
    training_flops: int | None  # for a token, forward and backward


def model_without_weights(config: Section, num_words: int) -> HeadModule:
    """The model of a configuration (plain data, resolved), on the meta device: it takes no memory.

    Raises: UserError naming the option that is wrong; caused by a RuntimeError where a class of the
        user's own cannot be made without values.
    """
    try:
        with torch.device("meta"):
            return make_model(config, torch.zeros(num_words, dtype=torch.long))
    except RuntimeError as error:
        raise _not_on_meta("made", error) from error


def model_sizes(model: HeadModule) -> dict[str, Size]:
    """The sizes of trunk, head and whole of a model on the meta device.

    What both share, as a tied embedding, is the trunk's. FLOPs are known of language models alone.
    """
    trunk = list(model.trunk.parameters())
    shared = {id(p) for p in trunk}
    head = [p for p in model.head.parameters() if id(p) not in shared]
    flops: list[tuple[int, int]] = []
    if isinstance(model, LanguageModel):
        try:
            flops = _flops(model)
        except RuntimeError as error:  # of a class of the user's, perhaps
            raise _not_on_meta("run", error) from None
    return {
        "trunk": _size(trunk, flops[:1]),
        "head": _size(head, flops[1:]),
        "total": _size([*trunk, *head], flops),
    }


def _not_on_meta(what: str, error: RuntimeError) -> UserError:
    reason = str(error).partition("\n")[0]
    return UserError(f"the model cannot be {what} on PyTorch's meta device: {reason}")


def _size(parameters: list[nn.Parameter], flops: list[tuple[int, int]]) -> Size:
    return Size(
        sum(p.numel() for p in parameters if p.requires_grad),
        sum(p.numel() for p in parameters),
        sum(p.numel() * p.element_size() for p in parameters),
        sum(forward for forward, _ in flops) if flops else None,
        sum(training for _, training in flops) if flops else None,
    )


def _flops(model: LanguageModel) -> list[tuple[int, int]]:
    """Forward alone, and with backward, of trunk and head for a token."""
    trunk, head = model.train().trunk, model.head
    with torch.device("meta"):
        token, target_1 = trunk.one_token(), torch.zeros(1, dtype=torch.long)
        # with a gradient, as within a window the state before a token has
        state = [(_learning(first), _learning(second)) for first, second in trunk.initial_state(1)]
        outputs: list[Tensor] = []

        def read() -> Tensor:
            outputs[:] = [model.head_input(trunk(token, state))]
            return outputs[0].sum()

        def lose() -> Tensor:
            inputs = head.formula_inputs(_learning(outputs[0].detach()))
            arguments = (inputs, target_1)
            nll_1: Tensor = functional_call(head, head.formula_weights(), arguments)
            return nll_1.sum()

        return [_counted(read), _counted(lose)]


def _learning(x: Tensor) -> Tensor:
    return x.requires_grad_() if x.is_floating_point() else x


def _counted(work: Callable[[], Tensor]) -> tuple[int, int]:
    with FlopCounterMode(display=False) as forward, FlopCounterMode(display=False) as whole:
        loss = work()
        before = forward.get_total_flops()
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
    return before, whole.get_total_flops()


def flops_per_second(threads: int, on_gpu: bool) -> float:
    """FLOPs per second of the fastest of many float32 matrix products.

    On a CPU it is the speed of one thread in its own CPU time, times the threads that have a core,
    so that other load hardly changes it.
    """
    torch.set_num_threads(1)
    clock = time.perf_counter if on_gpu else time.process_time
    matrix = torch.rand(_SIDE, _SIDE, device="cuda" if on_gpu else "cpu")
    fastest_s, start = math.inf, time.perf_counter()
    while time.perf_counter() - start < _TIMED_S or math.isinf(fastest_s):
        begun = clock()
        float((matrix @ matrix)[0, 0])
        fastest_s = min(fastest_s, clock() - begun)
    cores = usable_cores() or os.cpu_count() or threads
    return (1 if on_gpu else min(threads, cores)) * 2 * _SIDE**3 / fastest_s
