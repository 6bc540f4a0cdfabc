"""Configurations of finished runs name classes where they stood when the runs were trained."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from lmkit.experiment.conclusion import Conclusion
from lmkit.experiment.make import MOVED, make


def test_a_configuration_that_names_a_class_where_it_stood_makes_it():
    section = {
        "_target_": "lmkit.evaluation.conclusion.Conclusion",
        "contexts": 50,
        "sample": 40,
    }
    made = make(section, "conclusion", Conclusion)
    assert (made.contexts, made.sample) == (50, 40)


@pytest.mark.parametrize(("former", "current"), MOVED.items())
def test_each_class_is_where_its_name_says_and_nowhere_else(former, current):
    module, _, name = current.rpartition(".")
    assert hasattr(importlib.import_module(module), name)
    module, _, name = former.rpartition(".")
    if importlib.util.find_spec(module.rpartition(".")[0]) and importlib.util.find_spec(module):
        assert not hasattr(importlib.import_module(module), name)
