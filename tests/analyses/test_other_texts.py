"""What is measured on another text than a run's own never stands for the run's."""

import random
import shutil
from pathlib import Path

import pytest

from lmkit.analyses.base import measured
from lmkit.analyses.rank import Rank
from lmkit.data.corpus import TextCorpus
from lmkit.experiment.load import with_data_in
from lmkit.results.frame import frame
from lmkit.runs.analysis_files import Text
from lmkit.runs.checksums import parse_json
from lmkit.runs.folder import RunFolder, read_finished
from tests import tiny

pytestmark = pytest.mark.usefixtures("undrawn")
WORDS = [f"w{i}" for i in range(30)]
SMALL = ["data=text", "threads=1", "logger=csv", "callbacks.progress_bar=null", "max_epochs=1"]
SMALL += ["callbacks.spectrum=null", "trunk.emb_dim=12", "trunk.out_dim=12", "trunk.hidden_dim=12"]
OF_CONTEXTS = ("rank", "divergence", "logits", "gradient_bottleneck", "truncation")
COMMANDS = {command: ["contexts=50"] for command in OF_CONTEXTS} | {
    "evaluate": ["split=test"],
    "samples": ["texts=1", "length=5"],
    "embeddings": [],
    "nearest_softmax": ["contexts=50", "iterations=10"],
    "unargmaxable": [],
    "predictions": ["published=false", "random=1", "hits=5"],
    "press_robustness": ["contexts=50", "round_trips=1", "noise=[1e-20]"],
}


def write_text(folder: Path, seed: int) -> Path:
    """Three splits of the same words, in an order that the seed decides."""
    folder.mkdir(exist_ok=True)
    drawn = random.Random(seed)
    for split, lines in (("train", 200), ("valid", 30), ("test", 30)):
        text = [" ".join(drawn.sample(WORDS, 30)) for _ in range(lines)]
        folder.joinpath(f"{split}.txt").write_text("\n".join(text) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("texts")
    write_text(place / "own", 1)
    tiny.trained(place / "runs", *SMALL, f"data.root={place / 'own'}")
    return place


@pytest.fixture
def place(trained, tmp_path, monkeypatch) -> Path:
    """The text `own`, the run that was trained on it in `runs`, and another text, `other`."""
    here = Path(shutil.copytree(trained, tmp_path / "here"))
    write_text(here / "other", 2)
    monkeypatch.chdir(here)
    return here


def files(folder: RunFolder) -> dict[str, bytes]:
    found = [*folder.analysis.glob("*"), *folder.spectra.glob("*")]
    return {path.name: path.read_bytes() for path in found if not path.name.startswith("decoder")}


@pytest.mark.parametrize(
    ("command", "how"), [*((command, "data_root") for command in COMMANDS), ("rank", "edited")]
)
def test_another_text_overwrites_nothing(command, how, place, lmkit):
    path = tiny.run_of(place / "runs", "text").path
    folder, own = RunFolder(path), place / "own"
    where = [f"data_root={own}"]
    options = [f"run={path}", *COMMANDS[command]]
    lmkit(command, *options, *where)
    before = files(folder)
    assert before
    (kept,) = folder.analysis.glob("*.json")
    text = Text(**parse_json(kept.read_bytes())["measured_on"])
    assert text.is_own
    assert text.sha256 == read_finished(folder).settings["data_sha256"]
    if how == "edited":
        write_text(own, 3)
    else:
        where = [f"data_root={place / 'other'}"]
    shown = lmkit(command, *options, *where)
    after = files(folder)
    assert {name: after[name] for name in before} == before
    added = {name.partition(".")[0] for name in after.keys() - before.keys()}
    root = own if how == "edited" else place / "other"
    sha256 = TextCorpus("text", str(root), ".").fingerprint()
    assert added
    assert all(name.endswith(f"@{sha256[:8]}") for name in added)
    (other,) = folder.analysis.glob("*@*.json")
    assert Text(**parse_json(other.read_bytes())["measured_on"]) == (str(root), sha256, False)
    assert f"not its own text but {root}, {sha256[:8]}" in shown


@pytest.mark.parametrize("of_trunk", [False, True])
def test_a_corpus_that_was_moved_is_looked_for_where_corpora_are_now(
    tmp_path, monkeypatch, of_trunk
):
    text = {"name": "ptb", "folder": "penn"}
    data = {"name": "trunk-1", "folder": "runs/trunk-1", "text": text} if of_trunk else text
    of_run = {"data": data | {"root": str(tmp_path / "before")}}
    monkeypatch.setenv("LMKIT_DATA", str(tmp_path))
    assert with_data_in(None, of_run) == of_run  # it is not there either: the error names its place
    (tmp_path / "penn").mkdir()
    assert with_data_in(None, of_run)["data"]["root"] == str(tmp_path)
    (tmp_path / "before").mkdir()
    assert with_data_in(None, of_run)["data"]["root"] == str(tmp_path)
    (tmp_path / "before/penn").mkdir()
    assert with_data_in(None, of_run) == of_run
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in ("~/before", 2026):  # a number is a folder's name too
        of_run["data"]["root"] = root
        (tmp_path / "2026/penn").mkdir(parents=True, exist_ok=True)
        assert with_data_in(None, of_run) == of_run
    of_run["data"]["root"] = "~nobody-of-this-name/data"
    monkeypatch.setenv("LMKIT_DATA", "~")
    assert with_data_in(None, of_run)["data"]["root"] == "~"
    of_run["data"].get("text", of_run["data"])["folder"] = "."  # any folder's name
    assert with_data_in(None, of_run) == of_run
    of_own_class = {"data": {"name": "mine", "folder": "penn", "text": "all"}}
    assert with_data_in(None, of_own_class) == of_own_class


def test_what_was_measured_on_another_text_is_no_rank_of_the_run(place, lmkit):
    path = tiny.run_of(place / "runs", "text").path
    lmkit("rank", f"run={path}", "contexts=50", f"data_root={place / 'other'}")
    (row,) = frame([RunFolder(path)]).to_dict("records")
    assert not any(column.startswith("rank.") and "@50" in column for column in row)
    assert list(measured(RunFolder(path), Rank, "", {})) == []
    lmkit("rank", f"run={path}", "contexts=50")
    ((_, own),) = measured(RunFolder(path), Rank, "", {})
    (again,) = frame([RunFolder(path)]).to_dict("records")
    assert again["rank.press@50"] == own.record.press_rank
