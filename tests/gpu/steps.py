"""What tests/gpu/run.sh does, piece by piece, within a limit of time; run.sh has the options.

Each piece is a process of its own. What it found is in the results folder as soon as it ends, so
that the same command goes on after it, on this machine or on another that is given the folder.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pieces import STEPS, Piece, pieces_of
from training import train_pieces

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = ("torch", "pytorch_lightning", "torchmetrics", "hydra", "omegaconf", "antlr4", "yaml")
NEEDED += ("numpy", "scipy", "matplotlib", "rich", "jinja2", "platformdirs", "pytest", "submitit")
SHARE_MIN = {"check": 4.0, "bench": 5.0, "spectrum": 3.0}  # of the step `all`, over all commands
LOG_BYTES = 1_000_000
END_S = 5.0  # kept for the last files


class Work:
    """The folders, the clock, and what has been found so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.folder: Path = args.work
        self.kept = self.folder / "results"
        self.out: Path | None = args.results
        self.ends = time.monotonic() + 60 * args.minutes - END_S
        self.log = self.folder / "log.txt"
        self.kept.mkdir(parents=True, exist_ok=True)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            for file in self.out.iterdir():  # of a command before, perhaps on another machine
                if file.is_file() and not (self.kept / file.name).exists():
                    shutil.copyfile(file, self.kept / file.name)

    def left(self) -> float:
        """Seconds until no more may be done."""
        return self.ends - time.monotonic()

    def found(self, step: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.kept / f"{step}.json").read_text("utf-8"))
        except (OSError, ValueError):  # none yet, or cut short
            return {}
        return found

    def keep(self, step: str, name: str, outcome: dict[str, Any]) -> None:
        self.write(f"{step}.json", json.dumps(self.found(step) | {name: outcome}, indent=1))

    def write(self, name: str, text: str) -> None:
        """A file of the results, whole or not at all."""
        for folder in (self.kept, self.out):
            if folder is not None:
                temporary = folder / f"{name}.tmp"
                temporary.write_text(text, "utf-8")
                temporary.replace(folder / name)

    def hand_out(self) -> None:
        """Every file of the results, and the end of the log, to where they are wanted."""
        if self.log.exists():
            text = self.log.read_bytes()[-LOG_BYTES:].decode("utf-8", "replace")
            self.write("log.txt", text)
        for file in self.kept.iterdir():
            if self.out is not None and file.suffix != ".tmp":
                shutil.copyfile(file, self.out / file.name)


def do(work: Work, step: str, piece: Piece) -> bool:
    """Runs a piece. Returns whether it came to its end, well or not, within its own limit."""
    most_s = 60 * piece.minutes * (20 if work.args.tiny else 1)  # tests run beside others
    limit = min(most_s, work.left())
    started = time.monotonic()
    with work.log.open("a", encoding="utf-8") as log:
        log.write(f"\n== {step} {piece.name}: {' '.join(piece.command)}\n")
        log.flush()
        with (work.folder / "out.txt").open("w+", encoding="utf-8") as out:
            process = subprocess.Popen(
                piece.command, stdout=out, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True, env=os.environ | piece.environment,
            )  # fmt: skip
            status = waited(process, limit, piece.grace_s)
            out.seek(0)
            text = out.read()
        log.write(text[-100_000:])
    seconds = time.monotonic() - started
    cut = status is None
    if cut and limit < most_s and not piece.goes_on:
        return False  # for want of time: it begins anew
    if cut and not piece.goes_on:
        outcome: dict[str, Any] = {"error": f"not done within {piece.minutes:g} minutes"}
    else:
        outcome = piece.read(text, -1 if status is None else status)
    outcome["seconds_taken"] = round(seconds, 1)
    work.keep(step, piece.name, outcome)
    told = outcome.get("error") or outcome.get("says") or "done"
    print(f"{step} {piece.name}: {str(told)[:200]} ({seconds:.0f} s)", flush=True)
    return not (piece.goes_on and outcome.get("unfinished"))


def waited(process: subprocess.Popen[bytes], limit: float, grace_s: float) -> int | None:
    """The status of a process and all that it started; None where it had to be ended."""
    try:
        return process.wait(timeout=max(0.1, limit - grace_s))
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number, seconds in ((signal.SIGTERM, max(grace_s, 1.0)), (signal.SIGKILL, 5.0)):
            if process.poll() is None:
                end(process, number)
                try:
                    process.wait(timeout=seconds)
                except subprocess.TimeoutExpired:
                    continue
        end(process, signal.SIGKILL)


def end(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def go_through(work: Work, step: str) -> None:
    """Does what is left of a step, as far as the time goes."""
    for piece in pieces(work, step):
        found = work.found(step).get(piece.name)
        again = found is not None and work.args.again and "error" in found
        if found is not None and not found.get("unfinished") and not again:
            continue
        spent = sum(each.get("seconds_taken", 0) for each in work.found(step).values())
        share_s = 60 * SHARE_MIN.get(step, float("inf"))
        if work.args.step == "all" and spent > share_s and not work.args.tiny:
            return
        if work.left() < piece.needs_s:
            continue
        do(work, step, piece)
        work.hand_out()


def pieces(work: Work, step: str) -> list[Piece]:
    args = work.args
    is_train = step == "train"
    found = train_pieces(args, work) if is_train else pieces_of(step, args, work.folder)
    return [piece for piece in found if args.only in piece.name]


def closing_line(work: Work, steps: list[str], seconds: float) -> tuple[str, int]:
    """What was done, and the exit status: 1 where a piece has failed."""
    told, failed = [], []
    for step in steps:
        found, wanted = work.found(step), pieces(work, step)
        done = [p for p in wanted if p.name in found and not found[p.name].get("unfinished")]
        failed += [f"{step} {p.name}" for p in done if "error" in found[p.name]]
        told.append(f"{step} {len(done)} of {len(wanted)}")
    errors = f"failed: {', '.join(failed)}" if failed else "none failed"
    where = work.out or work.kept
    return f"{'; '.join(told)}; {errors}; {seconds:.0f} s; results in {where}", int(bool(failed))


def machine(args: argparse.Namespace) -> dict[str, Any]:
    """What computes: card, driver, versions."""
    code = """
import json, torch
from lmkit.runs.code import code_sha256
found = {"torch": torch.__version__, "cuda": torch.version.cuda, "code_sha256": code_sha256()}
on = torch.cuda.is_available()
found["cudnn"] = torch.backends.cudnn.version() if on else None
found["device"] = torch.cuda.get_device_name() if on else None
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise SystemExit(f"error: {(done.stderr.strip().splitlines() or ['torch fails'])[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    try:
        query = [
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.total",
            "--format=csv,noheader",
        ]
        smi = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        smi = ""
    found |= {"nvidia_smi": smi, "python": platform.python_version(), "cores": os.cpu_count()}
    found |= {"platform": platform.platform(), "date": time.strftime("%Y-%m-%d %H:%M")}
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description="See the head of run.sh.")
    parser.add_argument("step", choices=(*STEPS, "all"))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:cut])
    args.train_options = words[cut + 1 :]
    started = Path(os.environ.get("LMKIT_STARTED_IN", "."))
    args.results = args.results and (started / args.results).resolve()
    args.work = (started / args.work).resolve()
    given = args.data or os.environ.get("LMKIT_DATA") or ROOT / "data"
    args.data = (started / given).resolve()
    return args


def require(args: argparse.Namespace) -> None:
    """Ends in one line where something is missing, before time is spent on anything."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        where = "tests/gpu/wheels.sh collects wheels, --wheels FOLDER names them"
        raise SystemExit(f"error: this Python lacks {', '.join(missing)}; {where}")
    if args.step in ("train", "all") and not args.tiny and not (args.data / "penn").is_dir():
        raise SystemExit(f"error: {args.data} has no folder penn; --data FOLDER names the corpora")


def main() -> int:
    """Does the step and says in one line what was done."""
    args = arguments()
    require(args)
    started = time.monotonic()
    work = Work(args)
    with (work.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"error: another run.sh is at work in {work.folder}") from None
        about = machine(args)
        if args.device == "cuda" and about["device"] is None:
            raise SystemExit("error: torch sees no GPU; --device cpu --tiny tries the script out")
        os.environ["LMKIT_DATA"] = str(args.data)
        work.write("machine.json", json.dumps(about, indent=1))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # pieces are ended on the way out
        steps = list(STEPS) if args.step == "all" else [args.step]
        try:
            for step in steps:
                go_through(work, step)
        finally:
            work.hand_out()
            line, status = closing_line(work, steps, time.monotonic() - started)
            print(line, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
