"""What the manual promises of the command itself."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError

import pytest

from lmkit.cli.command_line import config_folders, options_first
from lmkit.cli.describe import size_table, time_line
from lmkit.cli.entry import CONFIGS
from lmkit.data.corpus import Sizes
from lmkit.errors.user_error import UserError
from lmkit.experiment import model_size
from lmkit.experiment.model_size import Size
from tests.conftest import KEPT
from tests.test_architecture import HEAVY_FOR_RUNS
from tests.tiny import TINY, composed


def process(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Types a line in a process of its own; options are those of subprocess.run."""
    command = [sys.executable, "-m", "lmkit", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, text=True, timeout=600, **(pipes | options))


def test_the_version_is_told_where_lmkit_is_not_installed_too(printed, monkeypatch):
    assert re.fullmatch(r"lmkit \d+\.\d+\.\d+", printed("--version"))

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert printed("--version") == "lmkit unknown"


def imported(*arguments: str, **options: object) -> tuple[str, set[str]]:
    """What a process of Python prints, and the modules that it imports."""
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "lmkit" in modules
    return done.stdout, modules


def test_help_lists_every_command_with_a_line_and_imports_nothing_heavy():
    shown, modules = imported("-m", "lmkit", "--help")
    assert not HEAVY_FOR_RUNS & modules
    for command in ("sync", "dashboard"):
        assert "wandb" not in imported("-m", "lmkit", command, "--help")[1]
    listed = {line.split()[0]: line for line in shown.splitlines() if line.startswith("  ")}
    for command in ("train", "describe", "finetune", "report", "sweep", "compare", "study"):
        assert len(listed[command].split()) > 3
    for analysis in ("evaluate", "rank", "divergence", "predictions", "embeddings", "logits"):
        assert len(listed[analysis].split()) > 3
    assert {"gradient_bottleneck", "press_robustness", "samples", "dialogue"} < listed.keys()
    assert not {"options", "entry", "analysis", "main", "command_line"} & listed.keys()
    alone = process()
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, shown, "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lmkit tra", "train"),
        ("lmkit train trigger=n", "trigger=never trigger=non_monotone"),
        ("lmkit train experiment=nope head/m", "head/mixture="),
        ("lmkit train data.root=", "data.root=runs/"),
        ("lmkit rank spl", "split="),
        ("lmkit rank run=runs/t", "run=runs/toy-a/ run=runs/toy-b/"),
        ("lmkit evaluate method=dynamic_m", "method=dynamic_mos method=dynamic_mos_wt2"),
        ("lmkit study mode", "mode_matching"),
        ("lmkit study degenerate dra", "draws="),
        ("lmkit reproduce parthiban_table2", "parthiban_table2"),
        ("lmkit reproduce parthiban_table2 dry", "dry_run="),
        ("lmkit clean ru", "runs/ runs_dir="),
        ("lmkit clean runs keep=b", "keep=best"),
        ("lmkit sweep st", "status stop"),
        ("lmkit sweep status mi", "mine"),
        ("lmkit sweep status mine a", "all="),
        ("lmkit sweep nothing x", ""),
        ("lmkit download pe", "penn"),
        ("lmkit dashboard mine --", ""),
    ],
)
def test_completion_knows_commands_options_choices_and_folders_and_prints_nothing_else(
    line, expected, tmp_path, monkeypatch, lmkit, capfd
):
    for folder in ("toy-a", "toy-b", "sweeps/mine"):
        (tmp_path / "runs" / folder).mkdir(parents=True)
    (tmp_path / "runs/sweeps/mine/manifest.json").write_text("{}")
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    lmkit("-sc", "query=bash")
    printed = capfd.readouterr()
    assert (sorted(printed.out.split()), printed.err) == (sorted(expected.split()), "")


def test_completion_is_of_this_program_alone(lmkit, capfd, monkeypatch):
    monkeypatch.delenv("COMP_LINE", raising=False)
    lmkit("-sc", "install=bash")
    assert capfd.readouterr().out.rstrip().endswith("-F hydra_bash_completion lmkit")


@pytest.fixture
def unread() -> Iterator[int]:
    """The descriptor of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


COMPARED = ["compare", f"a={KEPT}/penn_study-*", f"b={KEPT}/penn_study_*"]


@pytest.mark.parametrize("arguments", [["train", "--help"], ["runs", str(KEPT)], COMPARED])
def test_a_command_whose_output_nobody_reads_ends_quietly(unread, arguments):
    ended = process(*arguments, stdout=unread)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.slow
def test_a_training_whose_output_nobody_reads_ends_with_its_result(unread, tmp_path):
    ended = process("train", *TINY, stdout=unread, cwd=tmp_path)
    assert ended.stderr == ""
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 1


def test_a_mistake_is_told_where_the_output_is_not_read(unread):
    ended = process("train", "nothing=1", stdout=unread)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: there is no option nothing")
    assert ended.stderr.count("\n") == 1
    assert process("train", "nothing=1", stdout=unread, stderr=unread).returncode == 1


def test_help_is_short_and_imports_nothing_heavy(tmp_path):
    commands = ("train", "describe", "evaluate", "finetune")
    program = (
        "import sys, lmkit.cli.main as lmkit\n"
        f"for command in {commands}:\n"
        "    sys.argv = ['lmkit', command, '--help']\n"
        "    lmkit.main()\n"
        "    print('END')\n"
    )
    printed, modules = imported("-c", program, cwd=tmp_path)
    assert not {"torch", "scipy.stats", "wandb", "pandas"} & modules
    *every, _ = printed.split("END\n")
    for command, shown in zip(commands, every, strict=True):
        assert shown.startswith(f"lmkit {command} ")
        lines = shown.splitlines()
        assert len(lines) < 220
        assert not any(re.match("(conf|launches|runs)[/:]", line) for line in lines)


def test_a_finished_run_is_skipped_without_torch(trained):
    """Importing torch and Lightning takes most of a start's seconds."""
    line = ("train", *TINY, "seed=1", "trainer.accelerator=cpu")
    told, modules = imported("-m", "lmkit", *line, cwd=trained.parent)
    assert "already finished: runs/toy-" in told
    assert not {"torch", "pytorch_lightning", "wandb"} & modules


def test_help_lists_every_group_that_train_can_use(lmkit):
    shown = lmkit("train", "--help")
    groups = shown.partition("== Groups")[2].partition("== Options")[0].replace("\n  ", " ")
    listed = dict(line.split(": ", 1) for line in groups.splitlines()[1:] if line)
    folders = {str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir()}
    of_others = {"analyses", "finetuning", "method", "reproduce", "size", "studies"}
    usable = {folder for folder in folders - of_others if not folder.startswith("hydra")}
    assert listed.keys() == usable | {"hydra/launcher"}
    assert "penn_mos" in listed["experiment"].split(", ")


OWN_CUBE = "# The cube.\n_target_: outside.Power\npower: 3 # of the logits\n"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", ["experiment=wt2_gss", "callbacks=[default,gradient_bottleneck]"]),
        ("train", ["--config-dir", "mine", "head/transform=cube"]),
        ("train", ["--multirun", "seed=1,2"]),
        ("describe", ["trunk=transformer", "optimizer=adamw", "schedule=cosine"]),
        ("finetune", []),
        ("evaluate", ["method=dynamic"]),
        ("rank", []),
        ("compare", []),
        ("report", []),
    ],
)
def test_help_says_what_each_option_means(lmkit, command, arguments, tmp_path):
    (tmp_path / "mine" / "head" / "transform").mkdir(parents=True)
    (tmp_path / "mine" / "head" / "transform" / "cube.yaml").write_text(OWN_CUBE)
    options = lmkit(command, *arguments, "--help").partition("== Options")[2].splitlines()[1:]
    assert len(options) >= 4
    assert max(map(len, options)) <= 100
    unexplained = []
    for line, before in zip(options, ["", *options], strict=False):
        key = re.fullmatch(r" *'?([\w/]+)'?:( .*)?", line)
        if key and "#" not in line and not before.strip().startswith("#"):
            unexplained.append(key[1])
    plain = {"_target_", "name", "title", "short_title", "valid_tokens", "test_tokens", "runs_dir"}
    plain |= {"save_dir", "id"}
    assert set(unexplained) <= plain | {"epoch", "decay_grid", "gradient_bottleneck"}
    if "callbacks:" in options:
        above = [line for line in options[: options.index("callbacks:")] if line[0] == "#"]
        assert above[-3].startswith("# What happens around training.")
    if "mine" in arguments:
        assert "  # The cube.\n  transform:\n" in "\n".join(options)
        assert "    power: 3 # of the logits" in options


def test_help_of_describe_has_nothing_of_sweeps(lmkit):
    shown = lmkit("describe", "--help")
    for option in ("multirun_sweeps:", "hydra/launcher:", "sweep:", "dry_run:"):
        assert not re.search(rf"^{option}", shown, re.MULTILINE)


def test_what_an_output_cannot_encode_ends_no_command():
    done = process("evaluate", "--help", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2026" in done.stdout


def test_help_on_a_fixed_trunk_has_the_values_of_its_experiment(printed):
    assert "name: head_on_${data.name}" in printed("train", "trunk=fixed", "--help")


def test_help_on_a_corpus_that_builds_on_another_has_its_own_words_or_those_of_that(printed):
    of_dialogues = printed("train", "data=dailydialog", "--help")
    assert "tokenizer: word_punct # as Zhao et al. 2017" in of_dialogues
    of_text = printed("train", "data=text", "--help")
    assert "# spaces: words between white space; bpe: subwords" in of_text
    assert "root: null # the folder or the file" in of_text


def test_help_has_no_words_of_a_file_that_is_not_chosen(printed):
    of_toy = printed("reproduce", "yang_table1", "size=toy", "--help")
    assert " switch_epoch: 1 max_epochs: 2 " in of_toy  # size=small has a comment there
    assert " runs_dir: runs/toy # folder of runs of this size " in of_toy


def test_a_flag_takes_a_value_with_a_dash():
    line = ["--info", "defaults-tree", "seed=1"]
    assert options_first(line) == ["seed=1", "--info", "defaults-tree"]
    with pytest.raises(UserError, match="--info must be one of all, config, defaults, defaults-tr"):
        options_first(["--info", "default"])


def test_options_may_precede_a_name(printed, tmp_path):
    (tmp_path / "mine").mkdir()
    shown = printed("study", "--config-dir", "mine", "mode_matching", "--help")
    assert shown.startswith("lmkit study mode_matching ")


def test_a_value_with_letters_that_hydra_refuses_is_put_in_quotes():
    line = ["run=lä ufe", "runs='lä ufe'", "runs=[lä,ufe]", "seed=1"]
    assert options_first(line) == ["run='lä ufe'", *line[1:]]


def test_home_stands_for_its_folder(refused, monkeypatch, tmp_path):
    """Shells leave ~ as it is behind a =."""
    monkeypatch.setenv("HOME", str(tmp_path))
    line = ["runs_dir=~/runs", "~optimizer.fused", "data.root=~", "run=a~b"]
    folder = f"'{tmp_path}"
    assert options_first(line) == [
        f"runs_dir={folder}/runs'",
        line[1],
        f"data.root={folder}'",
        line[3],
    ]
    assert f"not a sweep in {tmp_path}/no runs" in refused(
        "sweep", "status", "x", "runs_dir=~/no runs"
    )
    (tmp_path / "my").mkdir()
    assert config_folders(["--config-dir=~/my"]) == [tmp_path / "my"]
    assert options_first(["--config-dir=~/my"]) == [f"--config-dir={tmp_path}/my"]
    assert options_first(["--config-dir", "~/my"]) == ["--config-dir", f"{tmp_path}/my"]
    monkeypatch.setenv("LMKIT_DATA", "~/penn.txt")
    (tmp_path / "penn.txt").touch()
    assert "penn.txt is a file" in refused("download", "penn")


@pytest.mark.parametrize(
    ("variable", "given", "then"),
    [("GOMP_SPINCOUNT", "", "10000"), ("GOMP_SPINCOUNT", "7", "7"), ("OMP_WAIT_POLICY", "x", None)],
)
def test_threads_wait_in_a_loop_for_a_while_unless_told_otherwise(
    lmkit, monkeypatch, variable, given, then
):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "")
    monkeypatch.delenv("GOMP_SPINCOUNT")  # and put back as it was
    if given:
        monkeypatch.setenv(variable, given)
    with suppress(SystemExit):
        lmkit("--help")
    assert os.environ.get("GOMP_SPINCOUNT") == then


@pytest.mark.parametrize(
    ("output", "status", "error"),
    [("&-", 0, ""), ("/dev/full", 74, "error: a file, or the output: No space")],
)
def test_output_that_cannot_be_written_ends_in_a_line(output, status, error):
    line = f"exec {sys.executable} -m lmkit train --help >{output}"
    done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, timeout=600)
    assert (done.returncode, done.stderr[: len(error)]) == (status, error)
    assert len(done.stderr.splitlines()) == bool(error)


def test_a_full_disk_is_one_line_whatever_hydra_would_print(refused, monkeypatch):
    def full(config: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x/y")

    monkeypatch.setattr("lmkit.cli.train.run", full)
    assert refused("train", *TINY) == "/x/y: No space left on device"
    environment = os.environ | {"HYDRA_FULL_ERROR": "0"}
    line = [sys.executable, "-m", "lmkit", "report", "rnus=1"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.stderr == "error: Could not override 'rnus' (did you mean runs?)\n"


def test_describe_shows_sizes_and_writes_nothing(lmkit, tmp_path):
    sizes = ("data.train_tokens=5000", "data.valid_tokens=1000", "data.test_tokens=1000")
    shown = lmkit("describe", *sizes, "head/transform=plif_frozen", "data.num_words=50")
    assert "toy: 50 words, 5,000 / 1,000 / 1,000 tokens" in shown
    assert "PiecewiseLinear(knots=100000, limit=20.0, frozen=True)" in shown
    rows = [line.replace("│", " ").split() for line in shown.splitlines()]
    # 50 x 32 + 50, 4 x 64 x (32 + 64 + 2), 4 x 32 x (64 + 32 + 2); 10^5 slopes frozen
    total = ["total", "39,282", "139,282", "557,128"]
    assert next(row for row in rows if row[:1] == ["total"])[:4] == total
    said = " ".join(shown.split())
    assert re.search(r"time: about [\w. ]+ per epoch, [\w. ]+ for 24 epochs, without transf", said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (("data=text", "data.name=mine"), "mine"),
        (("experiment=penn_mos", "data=wikitext-2"), "penn_mos"),
    ],
)
def test_a_run_without_an_experiment_is_named_after_its_corpus(overrides, name):
    assert composed(*overrides)["name"] == name


def test_the_time_that_describe_tells_is_that_of_what_an_epoch_reads(monkeypatch):
    monkeypatch.setattr(model_size, "flops_per_second", lambda *_: 1000 / model_size.SHARE)
    size, corpus = Size(1, 1, 4, 2, 6), Sizes(50, (5000, 3000, 7000))
    config = {"trainer": {}, "windows": {"batch_size": 10, "bptt": 5}, "threads": 1}
    whole = config | {"max_epochs": 2}
    # (6 x 5000 + 2 x 3000) / 1000, or of 20 windows of 50 tokens
    assert time_line(whole, corpus, size).startswith(
        "time: about 36 s per epoch, 72 s for 2 epochs"
    )
    few = whole | {"trainer": {"limit_train_batches": 20}, "max_epochs": None}
    assert time_line(few, corpus, size).startswith("time: about 12 s per epoch, without")


def test_the_flops_of_a_training_stand_behind_those_of_a_reading():
    (row,) = size_table({"total": Size(1, 2, 8, 2_000_000, 6_000_000)}).rows
    assert list(row)[-2:] == ["2.000", "6.000"]
