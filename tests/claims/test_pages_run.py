"""README and the manual, line by line: what they tell to type runs, at tiny sizes."""

import gzip
import json
import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest

from tests.claims.conftest import Lmkit, forget_modules_in, typed_in
from tests.conftest import REPOSITORY, leave_undrawn
from tests.faults.comparison import runs_in
from tests.pages import MANUAL, README, lmkit_command, shell_lines, write_shown_files
from tests.pretrained_models import make_gpt2, make_tokenizer
from tests.studies.test_studies import TINY as TINY_STUDIES
from tests.tiny import TINY

# How a line begins that no test can run everywhere, and why. test_readme_commands.py composes those
# of lmkit.
NOT_RUN = {
    "lmkit download ": "fetches from the network",
    "pip install ": "fetches from the network",
    "lmkit rank hf=EleutherAI/": "fetches from the network",
    "lmkit train trunk=fixed ": "takes a trunk: tests/fixed_trunk runs it",
    "lmkit train multirun_sweeps=decoder_rank ": "likewise",
    "lmkit train multirun_sweeps=heads_alone ": "likewise",
    'eval "$(lmkit -sc ': "needs a shell: test_command_claims.py completes words",
    "lmkit runs 'runs state:unfinished'": "all here have finished: test_results.py has others",
    "nvidia-cuda-mps-control ": "needs a GPU",
    "echo quit | nvidia-cuda-mps-control": "likewise",
    'lmkit train multirun_sweeps=gss_grid_penn "callbacks=': "needs a GPU, likewise",
    "tensorboard ": "serves until it is stopped",
    "mlflow ": "likewise",
    "srun ": "needs SLURM: tests/slurm runs it",
    "sbatch ": "needs SLURM: tests/slurm runs it",
    "lmkit train multirun_sweeps=gss_grid_penn hydra/launcher=slurm ": "needs SLURM, likewise",
    "lmkit sweep status gss_grid_penn runs_dir=/shared/runs": "likewise",
    "lmkit sweep work gss_grid_penn runs_dir=/shared/runs": "likewise",
    "lmkit reproduce  ": "composes every sweep: test_reproduce_claims.py runs it",
    'lmkit sync "runs head:gss" online=true': "needs an account of W&B",
    "lmkit dashboard gss_grid_penn ENTITY/PROJECT": "needs an account of W&B",
}
TRAINED_SWEEPS = ("smoke", "gss_grid_penn")  # those that later lines measure; others are dry runs
FIRST = ("README", "data", "sweeps")  # what they train, others measure
LAST = ("dialogue", "training", "own_parts", "runs")  # which train much, or remove checkpoints
# the one report whose figures are drawn: it has those of pretrained models too
DRAWN = "lmkit report 'runs=[runs,pretrained]'"
OF_TOYS = ("experiment=toy", "multirun_sweeps=smoke")  # what trains on the toy language
# more than ten singular values, which press_robustness asks for
OF_LANGUAGE = tuple(re.sub(r"(emb|out)_dim=6", r"\1_dim=12", option) for option in TINY)
OF_DIALOGUE = ("threads=1", "logger=csv", "callbacks.progress_bar=null", "max_epochs=1")
MEASURES = ("rank", "divergence", "gradient_bottleneck", "press_robustness")
TINY_OPTIONS = dict.fromkeys(MEASURES, ("contexts=60",)) | {
    "describe": ("logger=csv",),
    "finetune": ("max_epochs=1",),
    "evaluate": ("search_tokens=200",),
    "predictions": ("random=1", "hits=20"),
    "dialogue": ("pairs=2", "beam=2", "n_best=2"),
}
LARGE = ("words", "steps", "device")  # options of studies that a line may set
SMALLER = {"data.train_tokens": "data.train_tokens=2000", "data.vocab_size": "data.vocab_size=300"}
NAME = re.compile(r"(penn_small\w*)-[0-9a-f]{12}")  # of a run, as the pages show it


def lines() -> Iterator[tuple[str, str]]:
    """Every line of every page, with the page's name."""
    pages = {page.stem: page for page in MANUAL if page.stem != "README"} | {"README": README}
    for name in (*FIRST, *sorted(pages.keys() - {*FIRST, *LAST}), *LAST):
        for line in shell_lines(pages[name].read_text("utf-8")):
            yield name, line.strip()


LINES = list(lines())


def write_texts(folder: Path, ending: str) -> None:
    """A corpus of three short splits: sentences, or utterances of two speakers."""
    folder.mkdir(parents=True)
    draw = random.Random(folder.name)
    words = ["the", "company", "said", "<unk>", *(f"w{i}" for i in range(40))]
    for split, count in (("train", 300), ("valid", 40), ("test", 40)):
        said = [" ".join(draw.choices(words, k=9)) for _ in range(count)]
        if ending == "tsv":
            said = [f"{i // 5}\t{'AB'[i % 2]}\t{text}" for i, text in enumerate(said)]
        (folder / f"{split}.{ending}").write_text("\n".join(said) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader types: with the corpora, and with the files that the pages show."""
    folder = tmp_path_factory.mktemp("reader")
    write_shown_files(folder)
    for corpus, ending in (
        ("data/penn", "txt"),
        ("data/switchboard", "tsv"),
        ("my_texts", "txt"),
        ("my_dialogues", "tsv"),
    ):
        write_texts(folder / corpus, ending)
    write_models(folder / "models", (folder / "data/penn/train.txt").read_text())
    write_other_forms(folder, (folder / "my_texts/train.txt").read_text().splitlines())
    return folder


def write_other_forms(folder: Path, lines: Sequence[str]) -> None:
    """A text in one compressed file of JSON Lines, and as a data set."""
    from datasets import Dataset, DatasetDict, disable_progress_bars

    records = "".join(json.dumps({"content": line}) + "\n" for line in lines)
    (folder / "all.jsonl.gz").write_bytes(gzip.compress(records.encode()))
    disable_progress_bars()
    splits = {name: Dataset.from_dict({"text": lines}) for name in ("train", "validation", "test")}
    DatasetDict(splits).save_to_disk(folder / "my_data_set")


def write_models(folder: Path, text: str) -> None:
    """A pretrained model, and two checkpoints of another."""
    tokenizer, model = make_tokenizer(text, begins=False), make_gpt2(num_words=290)
    for name in ("gpt2", "gpt2-ptb/step1", "gpt2-ptb/step2"):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def tiny(command: str, arguments: Sequence[str]) -> list[str]:
    """The rest of a line at a size of a second or two."""
    if "--help" in arguments:
        return list(arguments)
    first = list(arguments[:1])
    if command == "study":
        sizes = ["threads=1", *TINY_STUDIES[first[0]]]
        rest = [each for each in arguments[1:] if each.partition("=")[0] not in LARGE]
        own = {each.partition("=")[0] for each in rest}
        return [*first, *(each for each in sizes if each.partition("=")[0] not in own), *rest]
    if command == "reproduce":
        return [*(each for each in arguments if "size=" not in each), "dry_run=true", "size=toy"]
    if command != "train":
        searches = command != "evaluate" or "search=true" in arguments
        tiny = TINY_OPTIONS.get(command, ()) if searches else ()
        names = {option.partition("=")[0] for option in tiny}
        rest = [each for each in arguments if each.partition("=")[0] not in names]
        return [*rest, *tiny]
    rest = [each for each in arguments if not each.startswith("sweep.sample=")]
    chosen = "".join(each for each in rest if each.startswith(("experiment=", "multirun_sweeps=")))
    sizes = OF_DIALOGUE if "dialogue" in chosen else OF_LANGUAGE
    if (chosen and not chosen.startswith(OF_TOYS)) or "data=text" in rest:
        sizes = tuple(each for each in sizes if not each.startswith("data."))
    if "transformer" in chosen:  # it has an optimizer of its own
        sizes = tuple(each for each in sizes if each != "optimizer.lr=5")
    if "--multirun" in rest or "multirun_sweeps=" in chosen:
        rest.append("sweep.sample=1")
        if not chosen.endswith(TRAINED_SWEEPS) and "dry_run=true" not in rest:
            rest.append("dry_run=true")
    rest = [SMALLER.get(each.partition("=")[0], each) for each in rest]
    own = {each.partition("=")[0] for each in rest}
    return [*rest, *(each for each in sizes if each.partition("=")[0] not in own)]


def existing(line: str) -> str:
    """The line with the names of runs that there are in place of those shown."""
    line = line.replace("'*k=3.0*'", "'*k=*'")  # of the grid, a single point is here
    return NAME.sub(lambda name: next(Path("runs").glob(f"{name[1]}-*[0-9a-f]")).name, line)


def run_line(line: str, lmkit: Lmkit, monkeypatch: pytest.MonkeyPatch) -> str:
    """Types the line. Returns what went wrong, or nothing."""
    words = shlex.split(existing(line), comments=True)
    if words[0] == "export":
        monkeypatch.setenv(*words[1].split("="))
    elif words[0] in ("make", "python"):  # what make would do; what a script would take
        dry = (
            ["make", "-n", "--no-print-directory", *words[1:]]
            if words[0] == "make"
            else [sys.executable, words[1], "-h"]
        )
        done = subprocess.run(dry, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr
        last = "".join(done.stdout.splitlines()[-1:])
        return run_line(last, lmkit, monkeypatch) if lmkit_command(last) else ""
    else:
        command = lmkit_command(line)
        assert command is not None, line
        _, name, *arguments = shlex.split(existing(command), comments=True)
        with redirect_stderr(StringIO()) as stderr:
            try:
                lmkit(name, *tiny(name, arguments))
            except SystemExit as end:
                return f"{end.code} {stderr.getvalue()}" if end.code else ""
    return ""


def test_every_reason_is_that_of_a_line():
    for start in NOT_RUN:
        assert any(line.startswith(start) for _, line in LINES), start


@pytest.mark.slow
def test_every_line_of_every_page_runs(folder, monkeypatch, capsys):
    monkeypatch.delenv("LMKIT_DATA", raising=False)
    lmkit = typed_in(folder, monkeypatch)
    # of the processes of a sweep, too
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    failed, printed = {}, {}
    for page, line in LINES:
        command = line.partition("  #")[0].rstrip()
        if not line.startswith(tuple(NOT_RUN)) and command not in printed:
            with pytest.MonkeyPatch.context() as within:
                if command != DRAWN:
                    leave_undrawn(within)
                if wrong := run_line(line, lmkit, monkeypatch):
                    failed[f"{page}: {line}"] = wrong
            printed[command] = capsys.readouterr().out
    forget_modules_in(folder)
    assert not failed, json.dumps(failed, indent=1)
    assert DRAWN in printed
    runs = runs_in(folder / "runs")
    assert len(runs) > 15
    assert {run.state() for run in runs} == {"finished"}
    train, report = re.findall(r"```text\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert shape(train) == shape(printed["make run"])
    assert shape(report) == shape(printed[".venv/bin/lmkit report runs=runs"])


def shape(printed: str) -> list[str]:
    """What a command ends with, whatever its numbers: the names of a table's rows, and of files."""
    rows = re.findall(r"^│ (.+?) +│", printed, re.MULTILINE)
    files = re.findall(r"^(run folder|\d+ runs?): .*?([a-z.]+)(?:-\w+)?$", printed, re.MULTILINE)
    return [
        re.sub(r"\d[\d,.]*", "N", " ".join(each)) for each in [*([row] for row in rows), *files]
    ]
