"""Every test of the room starts from one seed, and no Python warning may be raised in it."""

import warnings
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded_and_without_warning() -> Iterator[None]:
    """PyTorch warns where recurrent weights are not contiguous, which costs ten times the time."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
