"""Which files of the group `analyses` are analyses, and of which class."""

import hydra
import pytest

from lmkit.analyses import finding

FILES = {
    "named": "# @package _global_\n_target_: lmkit.analyses.truncation.Truncation\n",
    "built_on_it": "# @package _global_\ndefaults:\n  - named\nsplit: valid\n",
    "no_class": "# @package _global_\nsplit: valid\n",
    "damaged": "# @package _global_\n_target_: [\n",
}


@pytest.mark.parametrize("is_searched", [False, True])  # by hydra.searchpath
def test_a_file_names_its_class_or_builds_on_one_that_does_and_others_are_told(
    is_searched, tmp_path, monkeypatch
):
    (tmp_path / "files" / "analyses").mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / "files" / "analyses" / f"{name}.yaml").write_text(text)
    if is_searched:
        override = f"hydra.searchpath=[{tmp_path / 'files'}]"
        monkeypatch.setattr(finding, "_overrides", lambda: [override])
    folder = tmp_path if is_searched else tmp_path / "files"
    with hydra.initialize_config_dir(str(folder), version_base="1.3"):
        classes, left_out = finding.find_analyses()
    assert [each.name for each in classes] == ["truncation"]
    assert sorted(left_out) == ["analyses/damaged", "analyses/no_class"]
    assert not any("\n" in reason for reason in left_out.values())
