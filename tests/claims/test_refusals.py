"""What commands refuse that take no sweep."""

import pytest

from tests.tiny import TINY


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("finetune run=x,y -m", "-m goes with lmkit train"),
        ("describe conclusion.contexts=0", "conclusion.contexts must be"),
        ("describe callbacks.spectrum.every=0", "callbacks.spectrum.every must be"),
    ],
)
def test_what_training_refuses_is_refused(refused, tmp_path, line, expected):
    command, *arguments = line.split()
    tiny = [each for each in TINY if command == "describe" and "callbacks" not in each]
    assert expected in refused(command, *tiny, *arguments)
    assert not (tmp_path / "multirun").exists()


@pytest.mark.parametrize("line", [("describe", "seed=1,2"), ("compare", "a=x,y", "b=z")])
def test_a_sweep_is_not_advised_where_it_is_refused(refused, line):
    said = refused(*line)
    assert "Ambiguous value" in said
    assert "--multirun" not in said
