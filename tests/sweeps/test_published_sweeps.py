"""The files in multirun_sweeps/ hold the published ranges, and every point of them is right."""

import re
from collections.abc import Iterator

import hydra
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

from lmkit.cli import entry as cli
from lmkit.data.corpus import Corpus, TextCorpus
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import make
from lmkit.fixed_trunk import composition
from lmkit.runs.identity import identity
from lmkit.runs.names import name_with_head
from lmkit.sweeps import axes
from lmkit.sweeps.planning import check
from lmkit.sweeps.points import Composer
from tests.conftest import REPOSITORY

FOLDER = cli.CONFIGS / axes.GROUP
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
# whose points tests/claims/test_reproduce_claims.py composes
_STEPS = "".join(path.read_text() for path in cli.CONFIGS.glob("reproduce/*.yaml"))
REPRODUCED = re.findall(r"sweep: (\w+)", _STEPS)
TEN_SEEDS = {6623, 8915, 4534, 4053, 568, 7266, 7763, 9410, 1045, 5127}


@pytest.fixture
def composer() -> Iterator[Composer]:
    cli.set_up_hydra()
    with hydra.initialize_config_dir(str(cli.CONFIGS), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        yield Composer(loader, "train", [], cli.config_reader())


def lines_of(name: str, *typed: str) -> list[axes.Line]:
    sweeper = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["hydra"]["sweeper"]
    return axes.expand(sweeper.get("params", {}), sweeper.get("parts", []), typed)


def values(lines: list[axes.Line], option: str) -> set[float | str]:
    """The values that an option takes in a sweep, as numbers where they are."""
    found = {o.partition("=")[2] for line in lines for o in line if axes.option_of(o) == option}
    return {float(v) if v.lstrip("-")[:1].isdigit() else v for v in found}


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_has_as_many_runs_as_its_file_says(name):
    header = (FOLDER / f"{name}.yaml").read_text().partition("hydra:")[0].replace("\n# ", " ")
    said = re.search(r"([\d,]+) runs", header)
    assert said is not None
    same = 1 if name == "own_study" else 0  # points that are the run of another
    assert int(said[1].replace(",", "")) == len(lines_of(name)) - same


def test_the_manual_has_each_sweep_with_its_runs():
    page, told = (REPOSITORY / "docs" / "sweeps.md").read_text("utf-8"), {}
    for names, counts in re.findall(r"^\| (`\w.*?`) \| ([\d, ]+) \|", page, re.MULTILINE):
        told |= dict(zip(re.findall(r"\w+", names), counts.split(", "), strict=True))
    header = {name: (FOLDER / f"{name}.yaml").read_text().replace("\n# ", " ") for name in NAMES}
    assert told == {name: re.search(r"([\d,]+) runs", text)[1] for name, text in header.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REPRODUCED])
def test_every_point_composes(name, composer, monkeypatch):
    """One of those that differ in numbers alone."""
    source = ({"name": "trunk", "out_dim": 8}, 8, None)
    monkeypatch.setattr(composition, "_run_source", lambda _: source)
    monkeypatch.setenv("LMKIT_DATA", "data")
    kinds = {tuple(re.sub(r"=-?[\d.]+$", "=", o) for o in line): line for line in lines_of(name)}
    for line in kinds.values():
        of = ["trunk.of=runs/trunk"] if "experiment=fixed_trunk" in line else []
        assert composer.compose((*line, *of))


def test_gss_grids_are_as_published():
    c = {0.5 * x for x in range(-4, 5)}
    penn, wt2 = lines_of("gss_grid_penn"), lines_of("gss_grid_wt2")
    assert values(penn, "head.transform.c") == values(wt2, "head.transform.c") == c
    assert values(penn, "head.transform.k") == {0.25 * x for x in range(5, 13)}
    assert values(wt2, "head.transform.k") == {0.5 * x for x in range(3, 7)}
    assert (values(penn, "experiment"), values(wt2, "experiment")) == ({"penn_gss"}, {"wt2_gss"})


@pytest.mark.parametrize(
    ("name", "corpus", "reported"), [("seeds_penn", "penn", 141), ("seeds_wt2", "wt2", 1881)]
)
def test_each_head_has_its_reported_seed_and_ten_more(name, corpus, reported):
    lines = lines_of(name)
    for head in ("softmax", "ss", "gss", "lms_plif", "mos", "moc"):
        own = [line for line in lines if line[0] == f"experiment={corpus}_{head}"]
        first = 28 if corpus == "penn" and head in ("mos", "moc") else reported
        assert values(own, "seed") == TEN_SEEDS | {first}


def test_nt_vs_et_with_n_as_published_is_one_run_a_head_corpus_and_trigger():
    published = lines_of("nt_vs_et", "trigger.n=5")
    assert len(published) == 24
    assert all(("trigger.n=5" in line) == line[0].endswith("_nt") for line in published)


def test_a_value_that_is_refused_changes_no_other_point(composer):
    lines = [("seed=1", "max_epochs=3"), ("seed=2", "max_epochs=${none}")]
    first = composer.compose(lines[0])
    with pytest.raises(UserError, match="none"):
        composer.compose(lines[1])
    assert composer.compose(lines[0]) == first


def test_runs_on_one_text_read_it_once(composer, tmp_path, monkeypatch):
    read, fingerprint = [], TextCorpus.fingerprint
    monkeypatch.setattr(
        TextCorpus, "fingerprint", lambda self: read.append(self) or fingerprint(self)
    )
    reader = cli.config_reader()
    for seed in ("seed=1", "seed=2"):
        line = ("experiment=penn_softmax", corpora(tmp_path), seed)
        reader.run_folder(composer.compose(line), False)
    assert len(read) == 1


def corpora(folder) -> str:
    for name in ("penn", "wikitext-2"):
        for split in ("train", "valid", "test"):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"{split}.txt").write_text("a text\n")
    return f"data.root={folder}"


@pytest.mark.slow
def test_a_part_of_the_largest_sweep_is_checked_and_composed_once(composer, tmp_path):
    ends = ("embed_dropout=0.075,0.125", "input_dropout=0.28,0.34", "hidden_dropout=0.20,0.35")
    typed = corpora(tmp_path), *(f"trunk.{axis}" for axis in ends)
    configs = [composer.compose(line) for line in lines_of("fair_comparison_stage2", *typed)]
    assert len(composer._composed) == 1  # one by one they take a second each
    config = configs[-1]
    assert config["trunk"]["embedding_noise"] == 0.2
    assert config["optimizer"]["weight_decay"] == 1.5e-6
    runs, error = check(configs)
    assert error is None
    assert len(set(runs)) == 2 * 2 * 2 * 5 * 4


@pytest.mark.slow
def test_a_point_of_every_kind_composes_as_hydra_would(composer, tmp_path):
    typed = corpora(tmp_path), "trunk.hidden_dim=24"
    published = ("seeds_penn", "mos_experts", "mos_latent_dropout", "gss_grid_wt2")
    lines = [line for name in published for line in lines_of(name, *typed)[::13]]
    lines += lines_of("smoke")[::5]
    composed = [composer.compose(line) for line in lines]
    plain = [cli.plain_config(hydra.compose("train", list(line))) for line in lines]
    named = [
        config | {"name": name_with_head(config["name"], line)}
        for config, line in zip(plain, lines, strict=True)
    ]
    assert composed == named
    assert check(composed)[1] is None


@pytest.mark.slow
def test_runs_for_a_gpu_elsewhere_are_called_as_they_will_be_there(composer):
    config = composer.compose(lines_of("smoke")[0])
    runs, _ = check([config], has_gpu=True)
    sha256 = make(config["data"], "data", Corpus).fingerprint()
    assert runs == [f"toy-{identity(config, sha256, 'cuda').digest}"]
