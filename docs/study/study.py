"""Keeps runs of heads, trained whole and on fixed trunks, and makes their tables and figures.

    python docs/study/study.py next RUNS      prints the commands that the rule asks for next, by
                                              what has finished in RUNS
    python docs/study/study.py keep RUNS      copies what has finished into runs/: heads, whole
                                              models, and trunks with their best.ckpt
    python docs/study/study.py restore RUNS   copies all of it back, so that only the rest is
                                              trained, with runs_dir=runs
    python docs/study/study.py compare RUNS   says whether runs trained anew in RUNS have the same
                                              digits as those kept
    python docs/study/study.py write          writes the report's tables, figures and page, and the
                                              texts from their templates
    python docs/study/study.py picture        draws the top of the page with Chromium:
                                              docs/pictures/report.png

The rule is in docs/fixed_trunk.md: `multirun_sweeps=heads_alone` and `multirun_sweeps=whole_heads`
train each head at two learning rates, and `next` follows it from there. `write` takes each head's
runs at the best rate so far. The texts are README.md beside this script and, between two comments,
the first screen of the project's README.md, which also has tables of the first study, `first/...`.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lmkit.analyses.logits import mean_slope
from lmkit.comparison.settings import labels, settings_but_defaults
from lmkit.runs.analysis_files import read_analysis
from lmkit.runs.atomic import replace_text
from lmkit.runs.finished import read_finished
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.sweeps.quoting import quoted
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER / "first")]

import first_study  # noqa: E402
from keeping import (  # noqa: E402
    Number,
    compare,
    copy_finished,
    copy_measured,
    copy_report,
    correlation,
    filled,
    rows_of,
    without_folders,
)

KEPT = FOLDER / "runs"
TEMPLATE, README = FOLDER / "README.template.md", FOLDER / "README.md"
FIRST_SCREEN, PROJECT = FOLDER / "first_screen.template", FOLDER.parents[1] / "README.md"
BEGINS, ENDS = "<!-- docs/study/first_screen.template -->\n", "<!-- end -->\n"
WHOLE = "penn_subwords_nt"  # experiment of the whole models
TRUNKS, HEADS, WHOLES = "penn_subwords[_-][!n]*", "head_on_*", f"{WHOLE}*"
FIRST, MORE = 141, (142, 143, 144, 145)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
WHOLE_RATES = (0.625, 1.25, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
WITHOUT_LATENTS = ("Softmax", "SS", "GSS (c=−1.5)", "GSS (c=1.5)", "LMS-PLIF")
IN_ORDER = (*WITHOUT_LATENTS, "MoC", "MoS (K=1)", "MoS (K=5)", "MoS + GSS", "Mixtape")
PUBLISHED = {  # Parthiban et al. 2021, table 2; their GSS has c = −1.5, their MoS 15 components
    "Softmax": "57.08 at 402",
    "SS": "57.05 at 5,113",
    "GSS (c=−1.5)": "57.00 at 8,904",
    "LMS-PLIF": "56.80 at 496",
    "MoS (K=5)": "54.91 at 9,981 (K=15)",
}
PRESS = "Press rank (10,000 contexts) mean"
TITLE = "Does a head do better because of its rank?"
ABOUT = (
    "Each head learns on the contexts of a finished run, which does not learn, or with a trunk of "
    "its own; at the rate that is best on valid with the first seed."
)
PICTURE = FOLDER.parent / "pictures" / "report.png"
WINDOW = "1100,1040"  # pixels of the picture
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Alone(NamedTuple):
    """A finished run of a head alone, or of a whole model."""

    path: Path
    trunk: str  # name of the trunk's folder; WHOLE: of no fixed trunk
    head: tuple[str, str]  # its display name, and the options that decide it
    rate: float
    seed: int
    valid_ppl: float
    command: str  # that trained it


class Tried(NamedTuple):
    """A head on a trunk: what has been tried, and what the rule says of it."""

    runs: list[Alone]

    @property
    def best(self) -> Alone:
        """Of the first seed, the run with the lowest valid perplexity."""
        firsts = (run for run in self.runs if run.seed == FIRST)
        return min(firsts, key=lambda run: run.valid_ppl)

    @property
    def missing_rates(self) -> list[float]:
        """The neighbours of the best rate that were not tried: none once it is no edge."""
        tried = {run.rate for run in self.runs if run.seed == FIRST}
        rates = WHOLE_RATES if self.best.trunk == WHOLE else RATES
        at = rates.index(self.best.rate)
        return [rate for rate in rates[max(at - 1, 0) : at + 2] if rate not in tried]

    @property
    def at_best(self) -> list[Alone]:
        """The runs at the best rate so far, of all seeds."""
        return [run for run in self.runs if run.rate == self.best.rate]

    @property
    def counted(self) -> list[Alone]:
        """The runs at the chosen rate; none while it is not known."""
        return [] if self.missing_rates else self.at_best

    def commands(self) -> list[str]:
        """What the rule asks for next."""
        if self.missing_rates:
            return [_with(self.best.command, "optimizer.lr", r) for r in self.missing_rates]
        seeds = {run.seed for run in self.counted}
        return [_with(self.best.command, "seed", seed) for seed in MORE if seed not in seeds]


def keep(runs: Path) -> None:
    count = sum(copy_finished(runs, KEPT, names) for names in (TRUNKS, HEADS, WHOLES))
    for log in KEPT.glob("*/train.log"):  # without the folder that they were trained in
        log.write_text(log.read_text("utf-8").replace(f"{runs.resolve()}/", "runs/"), "utf-8")
    for run in KEPT.iterdir():  # what was measured since
        copy_measured(runs / run.name, run)
    for trunk in KEPT.glob(TRUNKS):
        best, copy = RunFolder(runs / trunk.name).best, RunFolder(trunk).best
        if best.exists() and not copy.exists():
            content = load_checkpoint(best)
            content["lmkit"]["config"] = without_folders(content["lmkit"]["config"])
            copy.parent.mkdir()
            write_tensors(copy, content)
    for tried in tried_in(KEPT):
        for run in tried.runs:
            if run not in tried.at_best:  # no table or figure has it
                shutil.rmtree(run.path / "spectra", ignore_errors=True)
    print(f"kept: {count} more runs")


def tried_in(folder: Path) -> list[Tried]:
    """Each head, on each trunk and whole, that has a run with the first seed."""
    found: dict[object, list[Alone]] = {}
    results = (each for names in (HEADS, WHOLES) for each in folder.glob(f"{names}/result.json"))
    limited = limited_in(folder)
    for path in sorted(result.parent for result in results):
        if path in limited:
            continue
        run = _alone(path)
        found.setdefault((run.trunk, run.head), []).append(run)
    return [Tried(runs) for runs in found.values() if any(run.seed == FIRST for run in runs)]


def asked_for(every: Sequence[Tried]) -> list[str]:
    """The commands that the rule asks for next: of rates before those of seeds."""
    rates_first = sorted(every, key=lambda tried: not tried.missing_rates)
    return [command for tried in rates_first for command in tried.commands()]


def _alone(path: Path) -> Alone:
    run = RunFolder(path)
    config: dict[str, Any] = run.read_config()
    return Alone(
        path,
        Path(config["data"]["folder"]).name if config["name"].startswith("head_on") else WHOLE,
        (run.read_names().head, repr(config["head"])),
        config["optimizer"]["lr"],
        config["seed"],
        run.read_result().metrics["valid_ppl"],
        config["command"],
    )


def _with(command: str, option: str, value: float) -> str:
    others = (f"{option}=", "sweep.")
    words = [word for word in shlex.split(command) if not word.startswith(others)]
    return shlex.join([*words, f"{option}={value:g}"])


def write() -> None:
    """The reports, over the runs at the best rates tried and over decoders of limited rank; the
    texts, last.
    """
    every = tried_in(KEPT)
    with tempfile.TemporaryDirectory() as folder:
        out, limited = Path(folder) / "report", Path(folder) / "limited"
        _report(out, [run.path for tried in every for run in tried.at_best])
        _report(limited, limited_in(KEPT), "sections=[decoder_ranks]")
        for file in limited.glob("*/*_decoder_rank*"):
            shutil.copy2(file, out / file.relative_to(limited))
        known = numbers(every, out / "tables")
        page = filled(TEMPLATE, known)
        project = with_first_screen(PROJECT.read_text("utf-8"), known)
        copy_report(out, FOLDER)
    replace_text(README, page)
    replace_text(PROJECT, project)


def _report(out: Path, runs: Sequence[Path], *options: str) -> None:
    paths = ",".join(quoted(str(path)) for path in runs)
    texts = (f"title={quoted(TITLE)}", f"about={quoted(ABOUT)}")
    command = [sys.executable, "-m", "lmkit", "report", f"runs=[{paths}]", f"out={out}"]
    subprocess.run([*command, *texts, *options], check=True)


def limited_in(folder: Path) -> list[Path]:
    """The runs with a decoder of limited rank, which have one rate."""
    runs = (result.parent for result in sorted(folder.glob(f"{HEADS}/result.json")))
    return [run for run in runs if RunFolder(run).read_config()["head"].get("decoder_rank")]


def numbers(every: Sequence[Tried], tables: Path = FOLDER / "tables") -> dict[str, object]:
    """What the texts name: a table of the heads on each trunk, by the trunk's own head or the
    pretrained model's folder, and whole.

    Mean Press ranks and test perplexities at the best rates, `{softmax_press[MoC]}` and
    `{whole_test[MoC]}`; the test perplexity of a trunk with its own head, `{mos_own}`; the
    processors that trained the runs, `{alone_cpus}` and `{whole_cpus}`.

    And what the reports' tables have: differences between heads, `{softmax_pairs[MoC − Softmax]}`,
    of whole models `{whole_pairs[MoC − Softmax]}` (their table is `whole/pairs`), and of decoders
    of limited rank test perplexities and Press ranks, `{ppl[GSS / 4]}` and `{press[GSS / 4]}`,
    on GPT-2 `{gpt2_ppl[GSS / 4]}`. Of the first study, all tables.
    """
    known: dict[str, object] = {
        f"first/{name}": rows for name, rows in first_study.numbers().items()
    }
    on = {
        trunk: named([tried for tried in every if tried.best.trunk == trunk])
        for trunk in {tried.best.trunk for tried in every}
    }
    families = {WHOLE: "whole"} | {trunk.name: family_of(trunk) for trunk in KEPT.glob(TRUNKS)}
    for trunk, family in families.items():
        heads, prefix = on[trunk], table_prefix(trunk)
        known[f"{family}_press"] = {head: press_rank(tried) for head, tried in heads.items()}
        known[f"{family}_test"] = {head: test_ppl(tried) for head, tried in heads.items()}
        known[f"{family}_valid"] = {
            head: mean(run.valid_ppl for run in tried.at_best) for head, tried in heads.items()
        }
        known[f"{family}_pairs"] = differences(tables / f"{prefix}_pairs.csv")
        known[f"{family}_percent"] = percents(tables / f"{prefix}_pairs.csv")
    for trunk, family in families.items():
        if trunk != WHOLE:
            known[f"{family}_own"] = RunFolder(KEPT / trunk).read_result().metrics["test_ppl"]
    known["whole/pairs"] = rows_of(tables / f"{table_prefix(WHOLE)}_pairs.csv")
    known["compared"], known["settings"] = compared(known), settings(known)
    known["largest_gain"] = max(
        -known[f"{family}_percent"][f"{head} − Softmax"].low
        for family in families.values()
        for head in ("SS", "GSS (c=−1.5)")
    )
    known["slope"], known["bend"] = (
        {head: of(on[WHOLE][head]) for head in ("GSS (c=1.5)", "GSS (c=−1.5)", "LMS-PLIF")}
        for of in (slope_of, bend_of)
    )
    known["r"] = {
        family: correlation(
            [float(np.log(press_rank(tried))) for tried in on[trunk].values()],
            [test_ppl(tried) for tried in on[trunk].values()],
        )
        for trunk, family in families.items()
    }
    known["whole_epochs"] = {head: epochs_of(tried) for head, tried in on[WHOLE].items()}
    lucky, *others = sorted(run.valid_ppl for run in on[WHOLE]["MoC"].at_best)
    known["moc_luckiest"] = f"{lucky:.2f}"
    known["moc_others"] = f"{others[0]:.2f} to {others[-1]:.2f}"
    known["whole_at_ten"] = {
        head: next(run.valid_ppl for run in tried.runs if (run.rate, run.seed) == (10, FIRST))
        for head, tried in on[WHOLE].items()
    }
    starts = [averaged_from(run) for tried in on[WHOLE].values() for run in tried.at_best]
    known["averaged_from"] = f"{min(starts)} to {max(starts)}"
    origins = [RunFolder(run).read_result().provenance["git"]["dirty"] for run in KEPT.iterdir()]
    known["kept"], known["dirty"] = len(origins), sum(origins)
    known["whole_averaging"] = averaging_within(on[WHOLE])
    known["whole_cpus"] = cpus(on.pop(WHOLE).values())
    known["alone_cpus"] = cpus(tried for heads in on.values() for tried in heads.values())
    for limited in tables.glob("*_decoder_ranks.csv"):
        trunk = "gpt2_" if limited.name.startswith("gpt2") else ""
        rows = rows_of(limited)
        for name, column in (("ppl", "test perplexity mean"), ("press", PRESS)):
            known[trunk + name] = {
                head_and_rank: row[column] for head_and_rank, row in rows.items()
            }
    return known


def with_first_screen(readme: str, known: dict[str, object]) -> str:
    """The project's README with what the studies found between its two comments."""
    before, begins, rest = readme.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not ends:
        sys.exit(f"error: {PROJECT} lacks the line {BEGINS.strip()} or, after it, {ENDS.strip()}")
    return f"{before}{begins}{filled(FIRST_SCREEN, known)}{ends}{after}"


def compared(known: Mapping[str, Any]) -> str:
    """In Markdown, a row a head: Press ranks, test perplexity minus Softmax's, on the Transformer
    that on valid beside it, and what was published; in Softmax's row its perplexities.
    """
    names = (
        "head",
        "Press rank, fixed / whole",
        "on a fixed AWD-LSTM",
        "on a fixed Transformer",
        "the same on valid",
        "trained whole",
        "published per word, at rank",
    )
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for head in IN_ORDER:
        ranks = [known[f"{family}_press"].get(head) for family in ("softmax", "whole")]
        cells = [head, " / ".join(f"{rank:,.0f}" for rank in ranks if rank)]
        cells += [on_test(known, "softmax", head), on_test(known, "transformer", head)]
        cells += [on_valid(known, "transformer", head), on_test(known, "whole", head)]
        lines.append(f"| {' | '.join([*cells, PUBLISHED.get(head, '')])} |")
    return "\n".join(lines)


def settings(known: Mapping[str, Any]) -> str:
    """In Markdown: a row a head, a column a setting, each with the difference on test, that on
    valid and the Press rank.
    """
    columns = {
        "softmax": "on the Softmax trunk",
        "mos": "on the MoS trunk",
        "transformer": "on the Transformer",
        "whole": "trained whole",
    }
    lines = [f"| head | {' | '.join(columns.values())} |", "|---" * 5 + "|"]
    for head in IN_ORDER:
        cells = [head]
        for family in columns:
            test, rank = on_test(known, family, head), known[f"{family}_press"].get(head)
            rest = f"<br>valid {on_valid(known, family, head)}<br>rank {rank:,.0f}" if rank else ""
            cells.append(test + rest)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def on_test(known: Mapping[str, Any], family: str, head: str) -> str:
    """Test perplexity of Softmax, of another head minus Softmax's."""
    if head == "Softmax":
        return f"{known[f'{family}_test'][head]:.2f}"
    return known[f"{family}_pairs"].get(f"{head} − Softmax", "not trained")


def on_valid(known: Mapping[str, Any], family: str, head: str) -> str:
    """The same of valid perplexity, without an interval."""
    ppl = known[f"{family}_valid"]
    if head not in ppl:
        return ""
    return f"{ppl[head]:.2f}" if head == "Softmax" else f"{Number(ppl[head] - ppl['Softmax']):+.2f}"


def family_of(trunk: Path) -> str:
    """What the texts call a trunk: `softmax`, `mos` or `transformer`."""
    names = RunFolder(trunk).read_names()
    return "transformer" if names.trunk == "Transformer" else names.family


def table_prefix(trunk: str) -> str:
    """How the names of a trunk's tables begin; whole models have that of their corpus."""
    return "penn_bpe_1000" if trunk == WHOLE else trunk.replace("-", "_")


def slope_of(tried: Tried) -> float | None:
    """The mean slope of the transform over the logits of the first run at the best rate that
    `lmkit logits` measured; None if it measured none.
    """
    if "transforms.Identity" in tried.best.head[1]:
        return 1.0
    for run in tried.at_best:
        content = read_analysis(RunFolder(run.path), "logits", kind="logits", schema_version=1)
        if content is not None:
            return mean_slope(content)
    name = tried.best.path.name
    print(f"{name} has no logits, so that slopes are left out: lmkit logits run=runs/{name}")
    return None


def bend_of(tried: Tried) -> float:
    """How far the transform is from a straight line: the root mean square, over the logits of the
    run that `lmkit logits` measured, of what the best line leaves, in nats.
    """
    contents = (
        read_analysis(RunFolder(run.path), "logits", kind="logits", schema_version=1)
        for run in tried.at_best
    )
    content = next(each for each in contents if each is not None)
    edges, density = (np.array(content["histogram"][name]) for name in ("edges", "density"))
    middle, weight = (edges[1:] + edges[:-1]) / 2, density * np.diff(edges)
    curve = np.interp(middle, content["curve"]["logit"], content["curve"]["transformed"])
    line = np.poly1d(np.polyfit(middle, curve, 1, w=np.sqrt(weight)))
    return float(np.sqrt(np.average((curve - line(middle)) ** 2, weights=weight)))


def epochs_of(tried: Tried) -> str:
    """The fewest and the most that the runs at the best rate were trained for."""
    counts = [RunFolder(run.path).read_result().budget.epochs for run in tried.at_best]
    return f"{min(counts)} to {max(counts)}"


def averaged_from(run: Alone) -> int:
    """The first epoch whose weights were averaged; of a run without, the one after its last."""
    epochs = [row for row in MetricsFile(run.path / "metrics.csv").read() if "averaging" in row]
    averaged = (int(row["epoch"]) for row in epochs if row["averaging"])
    return next(averaged, len(epochs) + 1)


def averaging_within(heads: Mapping[str, Tried]) -> str:
    """Over the runs at the best rates, r of test perplexity with the first epoch averaged, given
    the head: whether of a head's seeds those that average later end lower.
    """
    several = [tried.at_best for tried in heads.values() if len(tried.at_best) > 1]
    runs = [run for at_best in several for run in at_best]
    ppl = [RunFolder(run.path).read_result().metrics["test_ppl"] for run in runs]
    others = [[float(run in at_best) for run in runs] for at_best in several[1:]]
    r = correlation([averaged_from(run) for run in runs], ppl, *others)
    return f"{r}, over {len(runs)} runs of {len(several)} heads"


class Difference(str):
    """A mean difference with its 95 % interval, as the texts have it."""

    low: float

    @classmethod
    def of(cls, mean: float, low: float, high: float, places: int) -> Difference:
        numbers = (f"{Number(value):.{places}f}" for value in (mean, low, high))
        made = cls("{} ({} … {})".format(*numbers))
        made.low = low
        return made


def differences(pairs: Path) -> dict[str, Difference]:
    """Test perplexity of a head minus another's, with the 95 % interval: of all with several seeds.

    By `MoC − Softmax`, without the rates that reports name.
    """
    return {
        pair: Difference.of(*ends, 2 if abs(ends[0]) > 0.1 else 3)
        for pair, (ends, _) in intervals_of(pairs).items()
    }


def percents(pairs: Path) -> dict[str, Difference]:
    """The same in per cent of the other's perplexity, but of A − B where the text says how far B
    is below A: of A's.
    """
    return {
        pair: Difference.of(*(100 * end / base for end in ends), 1)
        for pair, (ends, base) in intervals_of(pairs).items()
    }


def intervals_of(pairs: Path) -> dict[str, tuple[tuple[float, float, float], float]]:
    """Of both orders of a pair: difference, ends of the interval, and Softmax's perplexity if it is
    one of them, otherwise the second's.
    """
    found = {}
    for row in rows_of(pairs).values():
        ends = ("A − B", "95 % interval, method low", "95 % interval, method high")
        mean, low, high = (row[end] for end in ends)
        if isinstance(mean, Number) and isinstance(low, Number) and isinstance(high, Number):
            a, b = (without_rate(str(row[side])) for side in "AB")
            of_a, of_b = (float(row[f"{side}, test perplexity mean"]) for side in "AB")
            base = of_a if a == "Softmax" else of_b
            found[f"{a} − {b}"] = ((mean, low, high), base)
            found[f"{b} − {a}"] = ((-mean, -high, -low), of_a if b != "Softmax" else of_b)
    return found


def without_rate(head: str) -> str:
    """A head as a report names it, without its learning rate: `GSS (c=1.5, lr 5)`."""
    return re.sub(r", lr [\d.e−]+(?=\))| \(lr [\d.e−]+\)", "", head)


def named(every: Sequence[Tried]) -> dict[str, Tried]:
    """The heads on one trunk by what tells them apart, `MoS (K=5)`, the lowest mean valid
    perplexity at the best rate first.
    """
    ordered = sorted(every, key=lambda tried: mean(run.valid_ppl for run in tried.at_best))
    firsts = [read_finished(RunFolder(tried.best.path)) for tried in ordered]
    settings = [
        {option: value for option, value in settings_but_defaults(run).items() if "head." in option}
        for run in firsts
    ]
    heads = labels([run.folder.read_names() for run in firsts], settings)
    return dict(zip(heads, ordered, strict=True))


def press_rank(tried: Tried) -> float:
    """Mean over the seeds at the best rate."""
    return mean(result["test_spectrum"]["press_rank"] for result in results_of(tried))


def test_ppl(tried: Tried) -> float:
    """Mean over the seeds at the best rate."""
    return mean(result["test_ppl"] for result in results_of(tried))


def results_of(tried: Tried) -> list[dict[str, Any]]:
    """The metrics of the runs at the best rate."""
    return [RunFolder(run.path).read_result().metrics for run in tried.at_best]


def cpus(every: Iterable[Tried]) -> str:
    """On what they were trained: "31 runs on an Intel Xeon, 2 on an AMD EPYC"."""
    results = (RunFolder(run.path).read_result() for tried in every for run in tried.runs)
    names = (result.provenance["hardware"]["cpu"] for result in results)
    short = (name.replace("(R)", "").replace(" Processor", "") for name in names)
    counts = [f"{count} on an {name}" for name, count in Counter(short).most_common()]
    return ", ".join(counts).replace(" on", " runs on", 1)


def draw_picture() -> None:
    """The top of the page as a browser shows it; ends where there is no browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"error: none of {', '.join(BROWSERS)} is installed")
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WINDOW}")
    page, shot = FOLDER / "index.html", f"--screenshot={PICTURE}"
    subprocess.run([browser, *options, shot, page.as_uri()], check=True, stderr=subprocess.DEVNULL)
    image = Image.open(PICTURE).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("next", "keep", "restore", "compare"):
        commands.add_parser(name).add_argument("runs", type=Path)
    for name in ("write", "picture"):
        commands.add_parser(name)
    args = parser.parse_args()
    if args.command == "keep":
        keep(args.runs)
    elif args.command == "restore":
        shutil.copytree(KEPT, args.runs, dirs_exist_ok=True)
    elif args.command == "compare":
        compare(KEPT, args.runs)
    elif args.command == "write":
        write()
    elif args.command == "picture":
        draw_picture()
    else:
        for command in asked_for(tried_in(args.runs)):
            print(command)


if __name__ == "__main__":
    main()
