"""Heads said as mixture+transform: which there are, what they are made of, what is refused."""

from __future__ import annotations

import hydra
import pytest
import torch
from omegaconf import OmegaConf

from lmkit.cli.entry import CONFIGS
from lmkit.errors.user_error import UserError
from lmkit.studies.head_options import head_sections
from lmkit.studies.heads import MOC, MONOTONE_MLP, MOS, PLIF, SOFTMAX, sized

MIXTURES = ("none", "contexts", "softmaxes")
TRANSFORMS = [
    file.stem
    for file in (CONFIGS / "head" / "transform").glob("*.yaml")
    if "defaults" not in OmegaConf.load(file)
]


@pytest.fixture
def composing():
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        yield


def test_all_is_every_mixture_with_every_transform(free_heads):
    assert set(free_heads) == {f"{m}+{t}" for m in MIXTURES for t in TRANSFORMS}


def test_variants_take_part_when_they_are_named(composing):
    heads = ["softmaxes+gss_wt2", "none+plif_frozen", "none+plif_frozen"]
    frozen, wt2 = head_sections("heads", heads)
    assert (frozen["option"], frozen["transform"]["frozen"]) == ("none+plif_frozen", True)
    assert (wt2["option"], wt2["transform"]["k"]) == ("softmaxes+gss_wt2", 3.0)


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([], "heads must be all or a list"),
        ("none+plif", "heads must be all or a list"),
        (["none+plip"], "there is no head none+plip (did you mean none+plif?); a head is"),
        (["plif"], "there is no head plif"),
        (["doc+identity"], "doc+identity is not for studies, which have no trunk"),
    ],
)
def test_what_is_no_head_is_refused(heads, message, composing):
    with pytest.raises(UserError) as error:
        head_sections("heads", heads)
    assert message in str(error.value)


def test_sizes_go_to_the_parts_that_take_them(free_heads):
    kinds = [free_heads[option] for option in (SOFTMAX, PLIF, MONOTONE_MLP, MOC, MOS)]
    by_option = {head.option: head for head in sized(kinds, 3, 50, 7)}
    assert {option: head.sizes for option, head in by_option.items()} == {
        SOFTMAX: {},
        PLIF: {"knots": 50},
        MONOTONE_MLP: {"units": 7},
        MOC: {"num_experts": 3},
        MOS: {"num_experts": 3},
    }
    assert [by_option[option].components for option in (SOFTMAX, MOC, MOS)] == [1, 1, 3]
    assert [by_option[option].context_dim(4) for option in (SOFTMAX, MOC, MOS)] == [4, 15, 15]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [((0, 50, 7), "num_experts"), ((3, 1, 7), "knots"), ((3, 50, 0), "units")],
)
def test_sizes_that_are_wrong_are_named(sizes, message):
    with pytest.raises(UserError, match=f"^{message} must be a whole number"):
        sized([], *sizes)


def test_heads_have_no_dropout(free_heads):
    head = free_heads[MOS].build(3, 5)
    hidden_TBD = torch.randn(1, 4, free_heads[MOS].context_dim(3))
    assert torch.equal(head.log_probs(hidden_TBD), head.log_probs(hidden_TBD))
