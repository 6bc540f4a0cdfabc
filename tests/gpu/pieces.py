"""The pieces of the steps check, bench and spectrum: commands, and how their outcome is read."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = ("check", "bench", "spectrum", "train")
# Softmax at the batch sizes of others too. What is most wanted comes first.
BENCH = (
    "penn_softmax",
    "penn_softmax windows.batch_size=12",
    "penn_mos",
    "penn_gss",
    "wt2_softmax",
    "wt2_softmax windows.batch_size=15",
    "wt2_mos",
    "wt2_gss",
    "penn_transformer",
    "penn_lms_plif",
    "penn_ss",
    "penn_moc",
    "penn_doc",
    "penn_mixtape",
    "penn_mos_plif",
    "wt2_lms_plif",
    "wt2_transformer",
)
TINY_BENCH = ("penn_softmax", "penn_transformer trunk.num_layers=2")
SPECTRA = ("penn_mos", "penn_gss", "wt2_mos", "penn_softmax", "wt2_softmax")

Outcome = dict[str, Any]


class Piece(NamedTuple):
    """One process, and what to make of it."""

    name: str
    command: list[str]
    read: Callable[[str, int], Outcome]  # of its standard output and exit status
    minutes: float  # at most
    needs_s: float = 30.0  # it does not begin with less time left
    grace_s: float = 0.0  # from SIGTERM to SIGKILL
    goes_on: bool = False  # a process that was ended goes on where it stopped
    environment: Mapping[str, str] = {}


def pieces_of(step: str, args: argparse.Namespace, folder: Path) -> list[Piece]:
    """What a step consists of."""
    return {"check": checks, "bench": benches, "spectrum": spectra}[step](args, folder)


def checks(args: argparse.Namespace, folder: Path) -> list[Piece]:
    """pytest -m gpu, in processes side by side where pytest-xdist is there.

    Only files with such tests: others may want packages that the machine lacks. Without a GPU the
    tests of this folder's file run on the CPU.
    """
    files = sorted(ROOT.glob("tests/*/**/test_*.py"))
    own = HERE / "test_on_a_gpu.py"
    marked = [f for f in files if "pytest.mark.gpu" in f.read_text("utf-8") and f != own]
    chosen = ["-m", "gpu" if args.device == "cuda" else "not gpu and not slow"]
    report = folder / "tmp" / "pytest.xml"
    options = ["-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    options += ["--rootdir", str(ROOT), "--basetemp", str(folder / "tmp" / "pytest")]
    options += [f"--junit-xml={report}", "--maxfail=20", *chosen]
    if args.device == "cuda" and importlib.util.find_spec("xdist"):
        processes = max(1, min(12, (os.cpu_count() or 1) - 2))
        options += [f"--numprocesses={processes}", "--dist=worksteal"]
    command = [sys.executable, "-W", "ignore", "-m", "pytest", *options]

    def check(name: str, tested: list[Path]) -> Piece:
        line = [*command, *map(str, tested)]
        piece = Piece(name, line, lambda _, status: of_tests(report, status), 4.0)
        return piece._replace(environment={"OMP_NUM_THREADS": "1"})  # processes share the cores

    return ([check("rooms", marked)] if args.device == "cuda" else []) + [check(own.stem, [own])]


def of_tests(report: Path, status: int) -> Outcome:
    """Counts of tests, and what those that failed say."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
        report.unlink()
    except (OSError, ElementTree.ParseError):
        return {"error": f"pytest ended with status {status} and left no report"}
    failures: dict[str, str] = {}
    for case in cases:
        for kind in ("failure", "error"):
            for found in case.findall(kind):
                failures[str(case.get("name"))] = str(found.get("message"))[:500]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - skipped - len(failures)
    outcome: Outcome = {"passed": passed, "skipped": skipped, "failures": failures}
    outcome["says"] = f"{passed} passed, {skipped} skipped, {len(failures)} failed"
    if failures or status:
        outcome["error"] = outcome["says"] if failures else f"pytest ended with status {status}"
    return outcome


def benches(args: argparse.Namespace, folder: Path) -> list[Piece]:
    found = [_bench(args, f"experiment {each}", 2.0) for each in _experiments(args)]
    found[3:3] = [_bench(args, "loss_memory", 1.0), _bench(args, "packed penn_softmax", 3.0, 60.0)]
    mps = _bench(args, "packed_mps penn_softmax", 3.0, 60.0)._replace(grace_s=5.0)
    return [*found, mps]


def _experiments(args: argparse.Namespace) -> tuple[str, ...]:
    return TINY_BENCH if args.tiny else BENCH


def _bench(args: argparse.Namespace, work: str, minutes: float, needs_s: float = 30.0) -> Piece:
    command = [sys.executable, str(HERE / "bench.py"), *work.split(), *_where(args)]
    return Piece(re.sub("[^a-z0-9_=]+", "-", work), command, of_json, minutes, needs_s)


def spectra(args: argparse.Namespace, folder: Path) -> list[Piece]:
    wanted = SPECTRA[:1] if args.tiny else SPECTRA
    command = [sys.executable, str(HERE / "spectrum.py")]
    return [Piece(e, [*command, e, *_where(args)], of_json, 5.0, 60.0) for e in wanted]


def _where(args: argparse.Namespace) -> list[str]:
    return ["--device", args.device, *(["--tiny"] if args.tiny else [])]


def of_json(text: str, status: int) -> Outcome:
    """The object in the last line."""
    lines = text.strip().splitlines()
    if status or not lines:
        last = f": {lines[-1][:300]}" if lines else ""
        return {"error": f"ended with status {status}, see log.txt{last}"}
    found: Outcome = json.loads(lines[-1])
    ways = found.get("ways", {})
    wrong = [way for way, measured in ways.items() if "error" in measured]
    if wrong:
        found["error"] = f"{', '.join(wrong)}: {ways[wrong[0]]['error']}"
    elif ways:
        found["says"] = ", ".join(f"{w} {1000 * m['seconds']:.2f} ms" for w, m in ways.items())
    return found
