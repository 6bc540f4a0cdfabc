"""Heads as studies get them."""

from __future__ import annotations

import hydra
import pytest
from hydra.utils import instantiate

from lmkit.cli.entry import CONFIGS
from lmkit.studies.head_options import head_sections
from lmkit.studies.heads import FreeHead


@pytest.fixture(scope="session")
def free_heads() -> dict[str, FreeHead]:
    """Every mixture with every transform, by option."""
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        sections = head_sections("heads", "all")
    return {section["option"]: instantiate(section) for section in sections}
