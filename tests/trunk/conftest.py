"""Every test of the room starts from one seed, and no Python warning may be raised in it."""

from tests.kernels.conftest import seeded_and_without_warning as seeded_and_without_warning
