"""Analyses that hold a value of another type behind a right checksum: named, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from lmkit.cli.entry import experiment_config
from lmkit.comparison.facts import studies
from lmkit.comparison.run_files import Files
from lmkit.runs.checksums import KEY, checked_json
from lmkit.runs.selection import select_runs

KINDS = (
    "predictions", "embeddings", "logits", "samples", "dialogue", "press_robustness",
    "gradient_bottleneck", "rank_test_log_probs_82429", "divergence_test_82429",
)  # fmt: skip
HEAD = ("schema_version", "kind", "checkpoint", "averaged")


def places(content: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value, of a list to its first."""
    if where:
        yield where
    inner = content.items() if isinstance(content, dict) else enumerate(content[:1])
    for key, value in inner:
        if isinstance(value, dict | list):
            yield from places(value, (*where, key))
        else:
            yield (*where, key)


def with_another(content: Any, where: tuple[Any, ...], value: Any) -> Any:
    changed = deepcopy(content)
    at = changed
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    return changed


@pytest.mark.parametrize("stem", KINDS)
def test_no_value_of_another_type_ends_in_a_traceback(
    stem, tmp_path, make_run, add_analyses, analyses
):
    run = make_run(tmp_path, 1, 57.0, transform="gss")
    add_analyses(run)
    path = run / "analysis" / f"{stem}.json"
    content = json.loads(path.read_text())
    del content[KEY]
    selected = select_runs("runs", str(tmp_path)).runs
    (kind,) = (each for each in analyses if stem.startswith(each.name))
    named = set()
    for where in places(content):
        for wrong in ({"a": []}, "text", None, [[]], [], True):
            path.write_bytes(checked_json(with_another(content, where, wrong)))
            files = Files()
            (study,), _ = studies(selected, "gss", experiment_config, files)
            kind.sections(study, files)
            if files.damaged:
                named.add(where[0])
                assert files.damaged[0].name.endswith(f"{stem}.json")
    assert named - set(HEAD)
