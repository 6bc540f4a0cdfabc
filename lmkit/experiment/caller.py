"""What a training changes in the process that calls it, and gives back."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from lmkit.errors.user_error import UserError

_SEED = "PL_GLOBAL_SEED"  # Lightning's
_TRAINING = threading.Lock()


@contextmanager
def alone_in_process() -> Iterator[None]:
    """Within, this thread alone trains. Then random generators draw on as before, and algorithms
    are deterministic, and take threads, as before.

    Raises: UserError where another thread trains: both would draw from the same generators; and
        where new tensors would not be float32.
    """
    if torch.get_default_dtype() is not torch.float32:
        raise UserError(f"torch.set_default_dtype({torch.get_default_dtype()}): runs need float32")
    if not _TRAINING.acquire(blocking=False):
        raise UserError(
            "another thread of this process trains a run, and both would draw from the same random "
            "generators: train in processes"
        )
    ours, numpys, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    # without a use of CUDA before there is nothing to give back, and asking would take memory of
    # every GPU
    has_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cudas = torch.cuda.get_rng_state_all() if has_used else None
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    seed, threads = os.environ.get(_SEED), torch.get_num_threads()
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)
        if cudas is not None:
            torch.cuda.set_rng_state_all(cudas)
        torch.use_deterministic_algorithms(is_deterministic, warn_only=warns_only)
        torch.set_num_threads(threads)
        os.environ.pop(_SEED, None)
        if seed is not None:
            os.environ[_SEED] = seed
        _TRAINING.release()
