"""How fast this machine multiplies matrices, for estimates of training time."""

from __future__ import annotations

import math
import time

import torch

SHARE = 0.4  # of a matrix product's speed that training reaches, roughly
_SIDE = 1024  # of the timed matrices
_TIMED_S = 0.5


def flops_per_second(threads: int, on_gpu: bool) -> float:
    """FLOPs per second of the fastest of many float32 matrix products.

    On a CPU it is the speed of one thread in its own CPU time, times the number of threads, so that
    other load hardly changes it.
    """
    torch.set_num_threads(1)
    clock = time.perf_counter if on_gpu else time.process_time
    matrix = torch.rand(_SIDE, _SIDE, device="cuda" if on_gpu else "cpu")
    fastest_s, start = math.inf, time.perf_counter()
    while time.perf_counter() - start < _TIMED_S or math.isinf(fastest_s):
        begun = clock()
        float((matrix @ matrix)[0, 0])
        fastest_s = min(fastest_s, clock() - begun)
    return (1 if on_gpu else threads) * 2 * _SIDE**3 / fastest_s
