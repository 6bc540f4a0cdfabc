"""Records from plain data: each field of the type that it says."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.checksums import checked_json, parse_json, typed
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import RunIdentity
from lmkit.runs.names import RunNames
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder

RESULT = Result(SCHEMA_VERSION, "toy", "0" * 12, {"a": 1}, {}, {}, Spent(3, None, 3, "max_epochs"))


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...]
    scale: float | None = None


class Outer(NamedTuple):
    inner: list[Inner]
    by_name: dict[str, float]
    anything: object


def test_a_record_is_what_was_written():
    outer = Outer([Inner((1, 2)), Inner((), 3)], {"a": 0.5}, ["x"])
    content = {
        "inner": [{"sizes": [1, 2], "more": 0}, {"sizes": [], "scale": 3}],
        "by_name": {"a": 0.5},
        "anything": ["x"],
    }
    assert typed(Outer, json.dumps(content)) == outer
    assert typed(Result, json.dumps(asdict(RESULT))) == RESULT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"inner": [], "by_name": {}}, "anything"),
        ({"inner": [], "by_name": {"a": "1"}, "anything": 0}, r"by_name\.a: Input should be a"),
        ({"inner": [{"sizes": [1.5]}], "by_name": {}, "anything": 0}, r"inner\.0\.sizes\.0"),
    ],
)
def test_another_type_is_named(content, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        typed(Outer, json.dumps(content))


def test_names_an_identity_and_a_manifest_of_other_types_are_damaged(tmp_path: Path):
    run = RunFolder(tmp_path / "toy-0")
    names = RunNames("GSS", "gss", (0, 0, 3), "AWD-LSTM", "ET 2", "Toy language", "Toy")
    run.prepare("name: toy\n", RunIdentity({"seed": 1}, "0"), names)
    content = parse_json(run.identity.read_bytes())
    for field, value, read in (
        ("names", names._asdict() | {"place": "no"}, run.read_identity),
        ("settings", [], run.read_identity),
    ):
        run.identity.write_bytes(checked_json(content | {field: value}))
        with pytest.raises(UserError, match=rf"identity\.json is damaged: {field}"):
            read()
    point = Point("a", ["seed=1"], "toy-0", "toy", 3, None)
    sweep = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 1, [point]))
    sweep.save()
    assert SweepFolder.find("mine", str(tmp_path / "runs")).manifest == sweep.manifest
    damaged = asdict(replace(sweep.manifest, points=[replace(point, overrides="seed=1")]))
    (sweep.path / "manifest.json").write_bytes(checked_json({"schema_version": 3} | damaged))
    with pytest.raises(UserError, match=r"points\.0\.overrides: Input should be"):
        SweepFolder.find("mine", str(tmp_path / "runs"))
