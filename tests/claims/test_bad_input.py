"""What a user gets wrong, through the command: one line that is right, and nothing left behind."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import KEPT, PYTHONS_LOADER
from tests.tiny import TINY, without

TEXT = "data=toy goes with windows=bptt module=language_model and a trunk such as trunk=awd_lstm"
SHORT = "data.train_tokens=300 data.valid_tokens=30 data.test_tokens=30"  # quick to generate
DIALOGUE = "goes with windows=dialogue module=dialogue trunk=seq2seq, as experiment=dialogue_soft"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("data=dialogue", f"data gives DialogueSplits: data=dialogue {DIALOGUE}"),
        ("module=dialogue", f"takes PairBatch, but windows gives Window: {TEXT}"),
        ("windows=dialogue", f"takes DialogueSplits, but data gives TextSplits: {TEXT}"),
        ("trunk=seq2seq", f"takes Trunk, but trunk gives Seq2Seq: {TEXT}"),
        ("runs_dir=file/runs", "runs_dir=file/runs must be a folder, but file is a file"),
        (
            "runs_dir=a\udcff/b",
            "runs_dir must be the name of a folder in UTF-8, but is 'a\\udcff/b'",
        ),
        ("windows.batch_size=100000", "choose a smaller windows.batch_size"),
        ("logger=wandb logger.wandb.mode=online", "WANDB_API_KEY; logger.wandb.mode=offline needs"),
        ("logger=wandb logger.wandb.project=5", "number a text: 'logger.wandb.project=\"5\"'"),
        ("logger=wandb logger.wandb.mode=nonsense", "logger.wandb.mode"),
        ("logger=wandb +logger.wandb.nots=x", "did you mean logger.wandb.notes?"),
        ("+logger.mine._target_=builtins.dict", "logger.mine._target_"),
        ("conclusion.sample=1", "conclusion.sample"),
        ("callbacks.checkpoints=null", "callbacks.checkpoints"),
        ("callbacks.checkpoints.every_minutes=0", "callbacks.checkpoints.every_minutes"),
        ("+trainer.profiler=nonsense", "profiler"),
        ("+trainer.detect_anomaly=nonsense", "trainer.detect_anomaly"),
    ],
)
def test_a_refused_input_leaves_nothing_behind(
    refused, tmp_path, tmp_path_factory, monkeypatch, arguments, expected
):
    (tmp_path / "file").write_text("")
    for variable in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # where W&B's keys are
    options = [*TINY, *arguments.split()]
    if arguments == "data=dialogue":
        (tmp_path / "talks").mkdir()
        for split in ("train", "valid", "test"):
            (tmp_path / "talks" / f"{split}.tsv").write_text("1\ta\thello\n1\tb\thello\n" * 9)
        options = [arguments, "data.root=talks"]
    before = sorted(tmp_path.rglob("*"))
    assert expected in refused("train", *options)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_head_that_is_none_is_told_what_it_must_be(refused, tmp_path):
    (tmp_path / "mine.py").write_text("import torch\n\nclass Mine(torch.nn.Module):\n    pass\n")
    expected = "head._target_=mine.Mine must be a lmkit.heads.head.Head, but takes no parts"
    assert refused("train", *TINY, "head._target_=mine.Mine") == expected


def test_what_an_experiment_brings_can_be_left_out(printed, refused, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n\nclass Cube(torch.nn.Module):\n"
        "    def forward(self, logits):\n        return logits + 0.01 * logits**3\n"
    )
    own = ("head/transform=gss", "head.transform._target_=mine.Cube")
    left_out = "it takes no options; ~head.transform.c leaves out what a file sets"
    assert left_out in refused("train", *TINY, *own)
    without = ("~head.transform.c", "~head.transform.k")
    assert "Cube()" in printed("describe", *TINY, *own, *without)


def own_configs(folder: Path, **files: bytes) -> None:
    """Configurations of the user's own; in a name, __ stands for a folder."""
    for name, content in files.items():
        file = folder / "my_conf" / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"# @package _global_\n" + content)


SEARCHED = "hydra.searchpath=['file://my_conf']"
NOT_UTF8 = (b"# caf\xe9", "my_conf/experiment/mine.yaml is not UTF-8 text: line 2; convert")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\n\tseed: 3\n", "cannot start any token in "),
        (b"seed: 3\nseed: 4\n", "found duplicate key seed in "),
        (b"# \0", "special characters are not allowed in "),
        (b"seed: many", "/mine': ValidationError raised while composing config: Value 'many' of"),
        (b"trunk: big", "/mine': ValidationError raised while composing config: Cannot assign"),
        (b"name: [a, b]", "Cannot convert 'ListConfig' to string"),
        (b"- a", "Cannot merge DictConfig with ListConfig"),
        NOT_UTF8,
    ],
)
def test_a_mistake_in_an_own_file_is_explained(refused, tmp_path, monkeypatch, content, expected):
    monkeypatch.setattr(yaml, "SafeLoader", PYTHONS_LOADER)
    own_configs(tmp_path, experiment__mine=content)
    assert expected in refused("train", "--config-dir", "my_conf", "experiment=mine")


def test_so_it_is_wherever_the_file_lies_and_in_a_sweep(refused, tmp_path):
    content, expected = NOT_UTF8  # of which Hydra does not name the file
    own_configs(tmp_path, experiment__mine=content)
    assert expected in refused("train", SEARCHED, "experiment=mine")
    in_sweep = refused("train", SEARCHED, "--multirun", "experiment=toy,mine", "dry_run=true")
    assert in_sweep.startswith("point 2 (experiment=mine): ")
    assert expected in in_sweep


def test_an_own_sweep_is_found_wherever_it_lies(printed, tmp_path):
    sweeper = b'{params: {head/transform: gss, seed: "1,2"}}'
    own_configs(tmp_path, multirun_sweeps__mine=b"hydra: {mode: MULTIRUN, sweeper: %b}" % sweeper)
    line = ("multirun_sweeps=mine", "head.transform.k=2.5", "dry_run=true")
    shown = printed("train", SEARCHED, *TINY, *line)  # k is an option of the points alone
    assert "2 runs: 2 new" in shown


PACKED_SWEEP = b"""\
defaults: [override /hydra/launcher: packed]
hydra: {mode: MULTIRUN, launcher: {runs: 3}, sweeper: {params: {seed: "1,2"}}}
"""


def test_a_sweep_chooses_its_launcher_and_the_command_line_another(lmkit, tmp_path):
    own_configs(tmp_path, multirun_sweeps__mine=PACKED_SWEEP)
    line = ("--config-dir", "my_conf", "multirun_sweeps=mine")
    shown = ("--cfg", "hydra", "--package", "hydra.launcher")
    for launcher, expected in (
        ((), "trains: lmkit.sweeps.local.Packed\nruns: 3\n"),
        (("hydra/launcher=slurm",), "trains: lmkit.sweeps.slurm.Slurm\n"),
    ):
        assert expected in lmkit("train", *line, *launcher, *shown)
    assert "\nname: null\n" in lmkit("train", *line, "--cfg=job", "--package=sweep")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("hydra/launcher=packed hydra.launcher.devices=GPU-8", "devices must be a list such as ["),
        ("hydra/launcher=slurm hydra.launcher.setup=cuda", "setup must be a list such as [module"),
        ("hydra/launcher=packed hydra.launcher.rnus=2", "(did you mean hydra.launcher.runs?)"),
        ("--cfg job", "Only one of --run, --multirun, --cfg, --info and --shell_completion can be"),
    ],
)
def test_an_option_that_the_launcher_does_not_take_is_named(refused, arguments, expected):
    assert expected in refused("train", "--multirun", "seed=1,2", *arguments.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("trian seed=1", "no command trian (did you mean train?); lmkit --help lists them"),
        ("evaluate there", "'there' must follow the option that takes it, as in OPTION=there"),
        ("evaluate run=there/a.yaml", "there/a.yaml is a file; a run is named by its folder"),
        ("finetune run=x hydra/launcher=slurm", "launcher=slurm goes with lmkit train, where"),
        ("describe multirun_sweeps=smoke", "multirun_sweeps=smoke goes with lmkit train, where"),
        ("reproduce yang_table1 +hydra.sweeper.params.seed=1,2", "seed=1,2 goes with lmkit train,"),
        ("describe module=dialogue", TEXT),
        ("describe +trainer.limit_train_batches=abc", "trainer.limit_train_batches must be"),
        ("rank run=there -m contexts=1,2", "-m goes with lmkit train, where"),
        ("rank run=a,b hydra.mode=MULTIRUN", "hydra.mode=MULTIRUN goes with lmkit train, where"),
        ("train --help --config-dir nowhere", "--config-dir: nowhere is no folder"),
        ("mine --config-dir nowhere run=x", "--config-dir: nowhere is no folder"),
        ("dashboard mine", "ENTITY/PROJECT is missing"),
        ("describe max_epochs=0", "max_epochs must be a whole number of at least 1, but is 0"),
        ("describe conclusion.contexts=0", "conclusion.contexts must be"),
        ("describe callbacks.spectrum.every=0", "callbacks.spectrum.every must be"),
        ("runs there csv=yes", "csv must be one of true, false, but is 'yes'"),
        (f"train runs_dir=/proc/x {SHORT}", "cannot make the folder /proc/x: "),
        ("evaluate run=there head:gss", "in quotes, as in 'OPTION=runs head:gss'"),
        ("train ~stopping._target_ patience=3 stopping.epochs=4", "stopping._target_ must name"),
        (
            f"train head.transform._target_=tests.pages.shell_lines {SHORT}",
            "tests.pages.shell_lines is a function of page: a transform is a class derived from",
        ),
        ("clean runs seed=1", "--help lists them; a filter stands with its"),
        ("clean head:gss", "runs=head:gss selects no run: a filter stands with its runs in"),
        ("train --resolve", "The --resolve flag can only be used in conjunction with --cfg"),
        ("train --shell-completion install=fish2", "No completion plugin for 'fish2'"),
        ("train head=gss", "'head/gss' (did you mean head/transform=gss?); head= takes "),
        ("train experiment=penn_small data.num_words=9 data.rank=3", "words' (data=switchboard or"),
        ("train head.transform.k=2", "'head.transform.k' (head/transform=gss or gss_wt2 has it)"),
        ("train trunk.lr=2 data.lr=3", "'trunk.lr' (did you mean optimizer.lr?)"),
        ("train head/mixture=softmaxes head.mixture.experts=5", "mean head.mixture.num_experts?"),
        ("train data=penn data.root=there/a.yaml", "data.root=there/a.yaml must be a folder with"),
        ("report runs=null", "runs must name runs"),
        ("report runs=x ~strict", "~strict: options can be set, not removed"),
        ("rank run=x ~threads", "~threads: options can be set, not removed"),
        (
            "train head.transform._target_=torch.nn.Flatten +head.transform.start_dim=0 " + SHORT,
            "head.transform=Flatten makes (600,) of logits of shape (3, 200)",
        ),
        (
            "train head.transform._target_=torch.nn.ELU +head.transform.inplace=true " + SHORT,
            "head.transform=ELU changes its input: leave out inplace=true",
        ),
        ("describe head/mixture=doc head.mixture.hidden_dim=6", "hidden_dim (6) must be equal to"),
        ("describe head/mixture=softmaxes head.mixture.emb_dim=-1", "mixture.emb_dim must be a wh"),
        ("train data=text data.root=there/a.yaml", "must end in .txt, .txt.gz, .jsonl or"),
        ("finetune run=there optimizer.lr=1", "'optimizer.lr' (did you mean lr?)"),
        ("reproduce yang_table1 training.x=1", "To append to your config use +training.x=1"),
        (
            "train --config-dir there experiment=own",
            "In 'experiment/own': Could not load 'experiment/penn_smal' (did you mean penn_small?)",
        ),
        (
            "train --config-dir there experiment=far",
            "In 'experiment/far': ConfigKeyError raised while composing config: Key 'elsewhere'",
        ),
        ("report runs=x out=2024", "out must be a text, but is 2024; quotes make a number a text"),
        (
            f"train logger=wandb logger.wandb.tags=[{'t' * 65}]",
            "logger.wandb.tags: W&B takes 64 characters at most",
        ),
        ("report runs=x paper=Young", "paper=Young must begin with one of Parthiban et al. 2021, "),
        ("report runs=x runs_dir=2024", "quotes make a number a text: 'runs_dir=\"2024\"'"),
        ("study degenerate runs_dir=2024", "quotes make a number a text: 'runs_dir=\"2024\"'"),
        ("finetune", "run is not set: give it as run=VALUE"),
        ("finetune run=nowhere", "run=nowhere selects no run: it is not a folder, a pattern that"),
        ("finetune run=nowhere lr=0", "lr must be greater than 0, but is 0"),
        ("finetune run=nowhere n=0", "n must be a whole number of at least 1, but is 0"),
        ("download penn data.root=x", "there is no option data.root (did you mean root?)"),
        ("finetune run=nowhere patience=3", "there is no option patience; --help"),
        ("runs KEPT sort=tst_ppl", "sort: no run has 'tst_ppl' (did you mean test_ppl?)"),
        (f"runs KEPT columns={'x' * 410}", "columns: no run has 'xxx"),  # longer than a file's name
        ("runs KEPT columns=seed,sed", "columns: no run has 'sed' (did you mean seed?)"),
        ("evaluate run=KEPT search=true", "search=true: method=static has nothing to search; "),
        ("evaluate run=KEPT search_tokens=0", "search_tokens must be a whole number of at least 1"),
        ("evaluate run=KEPT search_tokens=9", "search_tokens goes with search=true"),
        ("evaluate run=KEPT method._target_=types.SimpleNamespace", "method._target_ must name a"),
        ("evaluate run=KEPT split=dev", "split must be one of train, valid, test, but is 'dev'"),
    ],
)
def test_what_newcomers_typed_is_answered(refused, tmp_path, line, expected):
    for group in ("experiment", "head"):
        (tmp_path / "there" / group).mkdir(parents=True)
    (tmp_path / "there" / "a.yaml").write_text("far: 1\n")
    head = "# @package _global_\n"
    (tmp_path / "there/experiment/own.yaml").write_text(f"{head}defaults: [penn_smal]\n")
    (tmp_path / "there/experiment/far.yaml").write_text(f"{head}elsewhere: 1\n")
    assert expected in refused(*line.replace("KEPT", str(KEPT)).split())


@pytest.mark.parametrize("line", [("describe", "seed=1,2"), ("compare", "a=x,y", "b=z")])
def test_a_sweep_is_not_advised_where_it_is_refused(refused, line):
    said = refused(*line)
    assert "Ambiguous value" in said
    assert "--multirun" not in said


@pytest.mark.parametrize(
    ("line", "place"), [(("runs",), "runs"), (("sweep", "status", "mine"), "runs/sweeps/mine")]
)
def test_a_folder_that_is_closed_to_the_user_is_named(refused, tmp_path, monkeypatch, line, place):
    (tmp_path / "runs" / "sweeps" / "mine").mkdir(parents=True)
    stat = Path.stat

    def closed(self: Path, **options: bool) -> os.stat_result:
        if self.name == "manifest.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", closed)  # root may read all
    assert refused(*line) == f"{place}/manifest.json: Permission denied"


@pytest.mark.usefixtures("undrawn")
def test_damaged_files_are_named_by_the_report_and_end_a_strict_one(refused, three, capsys):
    run = three[2].path  # of GSS
    rows = (run / "metrics.csv").read_text().splitlines(keepends=True)
    damaged = {
        "config.yaml": "a: [",
        "metrics.csv": "".join(rows[:-1]),
        "spectra/test_log_probs.npz": "no archive",
    }
    for file, content in damaged.items():
        assert (run / file).exists()
        (run / file).write_text(content)
    strict = refused("report", "runs=runs", "strict=true")
    assert strict == "strict=true: 3 were left out of the report"
    printed = " ".join(capsys.readouterr().out.split())
    for file in damaged:
        assert re.search(rf"left out: {run.name}(/|, in part: ){file}", printed), file


@pytest.mark.parametrize("here", [".", "checkpoints/.."])
def test_a_run_is_told_by_its_own_folder_from_within(lmkit, three, monkeypatch, here):
    run = three[2].path  # of GSS
    monkeypatch.chdir(run)
    assert f"\n{run.name},{run}\n" in lmkit("runs", here, "columns=folder", "csv=true")
    assert "1 finished run: " in lmkit("clean", here)


def test_a_finished_run_without_its_best_checkpoint_is_named(refused, three):
    three[0].best.unlink()
    place = f"runs/{three[0].path.name}"
    message = refused("evaluate", f"run={place}")
    assert "has finished, and its best.ckpt is needed here, but it is missing" in message
    assert f"to train it again: rm -r {place}, then lmkit train threads=1" in message


@pytest.mark.slow
def test_w_and_b_out_of_reach_does_not_stop_a_run(run, tmp_path):
    program = (
        "import sys, lmkit.tracking.wandb as live\n"
        "from lmkit.cli.main import main\n"
        "live.INIT_S = 5.0\n"
        "main()\n"
    )
    # a process of its own, with a W&B of its own: W&B reads its address once
    nowhere = {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    environment = {name: v for name, v in os.environ.items() if name != "WANDB_SERVICE"}
    done = subprocess.run(
        [sys.executable, "-c", program, "train", *without("logger="), "logger.wandb.mode=online"],
        cwd=tmp_path, env=environment | nowhere, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("W&B's record ends early") == 1
    assert run().state() == "finished"
