"""Which files of the group `analyses` are analyses, and of which class."""

from __future__ import annotations

from pathlib import Path

import hydra

from lmkit.analyses.finding import find_analyses

FILES = {
    "named": "# @package _global_\n_target_: lmkit.analyses.truncation.Truncation\n",
    "built_on_it": "# @package _global_\ndefaults:\n  - named\nsplit: valid\n",
    "no_class": "# @package _global_\nsplit: valid\n",
    "damaged": "# @package _global_\n_target_: [\n",
}


def test_a_file_names_its_class_or_builds_on_one_that_does_and_others_are_told(tmp_path: Path):
    (tmp_path / "analyses").mkdir()
    for name, text in FILES.items():
        (tmp_path / "analyses" / f"{name}.yaml").write_text(text)
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.3"):
        found = find_analyses()
    assert [each.name for each in found.classes] == ["truncation"]
    assert sorted(found.left_out) == ["analyses/damaged", "analyses/no_class"]
    assert not any("\n" in reason for reason in found.left_out.values())
