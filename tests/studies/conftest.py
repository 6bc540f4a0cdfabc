"""Heads as studies get them."""

from __future__ import annotations

import hydra
import pytest
from hydra.utils import instantiate

from lmkit.cli.entry import CONFIGS
from lmkit.studies.head_options import head_sections
from lmkit.studies.heads import FreeHead

# a second or two each
TINY = {
    "mode_matching": (
        "alphas=[0.01,1.0] seeds=2 num_contexts=12 num_words=8 dims=[1,2] more_words=[6] "
        "words_dim=2 knots=20 units=2 steps=3"
    ),
    "rank_bounds": ("num_contexts=14 num_words=12 rank=3 dims=[1,3] units=2 knots=20 steps=60"),
    "toy_rank": ("ranks=[4,5] dims=[2,3] num_contexts=20 num_words=10 knots=20 units=2 steps=3"),
    "degenerate": (
        "width=8 experts=[2,4] inputs=3 draws=1 image_side=3 channels=2 task_steps=2 "
        "task_width=6 task_seeds=2"
    ),
    "cost": (
        "words=[20,40] counts=[2,4] counts_words=20 num_contexts=4 emb_dim=3 num_experts=2 "
        "knots=20 units=2 repeats=1"
    ),
    "gss_pieces": "c=[-1.0,0.5] k=[0.5,2.0] points=9",
    "spamlang": (
        "words=[20,60] dims=[4,8] steps=4 batch=4 asked=10 num_experts=2 knots=20 units=2"
    ),
}


@pytest.fixture(scope="session")
def free_heads() -> dict[str, FreeHead]:
    """Every mixture with every transform, by option."""
    return made("all")


@pytest.fixture(scope="session")
def frozen_plif() -> FreeHead:
    """A head of whose parameters some are not learned."""
    return made(["none+plif_frozen"])["none+plif_frozen"]


def made(heads: str | list[str]) -> dict[str, FreeHead]:
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        sections = head_sections("heads", heads)
    return {section["option"]: instantiate(section) for section in sections}
