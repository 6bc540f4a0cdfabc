"""What a report calls the heads, from runs' composed configurations."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lmkit.cli.entry import compose, plain_config
from lmkit.comparison.heads import Head, head_of
from lmkit.tracking.fields import head_tag


@pytest.mark.parametrize(
    ("overrides", "name", "family"),
    [
        (["head=adversarial"], "Adversarial", "adversarial"),
        (["head=adversarial", "head/mixture=softmaxes"], "Adversarial + MoS", "adversarial_mos"),
        (["head=mixtape", "head/transform=gss"], "Mixtape + GSS", "mixtape_gss"),
        (["head=multi_facet"], "Multi-facet", "multi_facet"),
        (["experiment=penn_doc"], "DOC", "doc"),
    ],
)
def test_a_head_is_called_as_the_options_call_it(overrides, name, family):
    config = plain_config(compose("train", overrides))
    assert head_of(SimpleNamespace(settings=config)) == Head(family, name)
    assert head_tag(config["head"]) == family
