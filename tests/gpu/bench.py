"""Measures training steps on a device and prints JSON as its last line; steps.py calls it.

    python tests/gpu/bench.py experiment penn_softmax windows.batch_size=12
    python tests/gpu/bench.py packed penn_softmax       1, 2, 4, 8 runs at a time; or packed_mps
    python tests/gpu/bench.py loss_memory               MoS's loss at K = 5, 15, 30
    ... --device cpu --tiny                             the same in seconds, for its test

Ways are float32, TF32 and bfloat16, each with and without CUDA graphs; a Transformer's trunk is
compiled besides. "plain" is tests/benchmarks/plain_model.py in float32.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from measuring import (
    Step,
    configuration,
    largest_kernels,
    peak_mb,
    seconds_each,
    synchronize,
    waits_of,
    words_of,
)

PRECISIONS = ("32-true", "tf32", "bf16-mixed")
RUNS = (1, 2, 4, 8)
PLAIN = {  # by experiment: what plain_model.py calls its head
    "softmax": "softmax",
    "ss": "ss",
    "gss": "gss",
    "lms_plif": "lms_plif",
    "mos": "mos",
}


def experiment(args: argparse.Namespace) -> dict[str, Any]:
    """Each way of an experiment's step."""
    config = configuration(args.experiment, args.tiny, args.overrides)
    windows = config["windows"]
    found: dict[str, Any] = {
        "experiment": args.experiment,
        "batch": windows["batch_size"],
        "window": windows["bptt"],
        "words": words_of(config, args.tiny),
        "ways": {},
    }
    for way in ["eager"] + (["graphs"] if args.device == "cuda" else []):
        for precision in PRECISIONS if args.device == "cuda" else ("32-true", "bf16-mixed"):
            found["ways"][f"{precision} {way}"] = attempted(measured, config, args, precision, way)
    head = PLAIN.get(args.experiment.partition("_")[2])
    if head is not None:
        found["plain"] = attempted(plain, config, args, head)
    return found


def attempted(work: Any, *of: Any) -> dict[str, Any]:
    """What `work` returns, or what went wrong: the other ways are measured all the same."""
    try:
        result: dict[str, Any] = work(*of)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = str(error).strip().splitlines() or [""]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return {"error": f"{type(error).__name__}: {message[0][:300]} ({where})"}
    return result


def measured(
    config: dict[str, Any], args: argparse.Namespace, precision: str, way: str
) -> dict[str, Any]:
    with peak_mb(args.device) as peak:
        step = Step(config, words_of(config, args.tiny), args.device, precision, way)
        seconds = seconds_each(step, args.device, args.warmup, args.steps)
    found = {"seconds": seconds, "tokens_per_second": step.tokens / seconds, "peak_mb": peak[0]}
    found["waits"] = waits_of(step, args.device)
    if precision != "tf32":
        found["profile"] = largest_kernels(step, args.device, 3)
    return found


def plain(config: dict[str, Any], args: argparse.Namespace, head: str) -> dict[str, Any]:
    """A step of the plain implementation at the same sizes."""
    import torch
    from bench_cases import Case, plain_step

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    trunk, windows = config["trunk"], config["windows"]
    mixture, transform = config["head"]["mixture"], config["head"]["transform"]
    case = Case(
        num_words=words_of(config, args.tiny),
        emb_dim=trunk["emb_dim"],
        hidden_dim=trunk["hidden_dim"],
        out_dim=trunk["out_dim"],
        window=windows["bptt"],
        batch=windows["batch_size"],
        num_experts=mixture.get("num_experts", 0),
        knots=transform.get("knots", 0),
        input_dropout=trunk["input_dropout"],
        hidden_dropout=trunk["hidden_dropout"],
    )
    with peak_mb(args.device) as peak:
        step = plain_step(case, head, args.device, "32-true")
        seconds = seconds_each(step, args.device, args.warmup, args.steps)
    return {"seconds": seconds, "peak_mb": peak[0]}


def one_of_several(args: argparse.Namespace) -> dict[str, Any]:
    """One run beside others: it says that it stands before its first step, and waits for a line."""
    config = configuration(args.experiment, args.tiny, args.overrides)
    way = "graphs" if args.device == "cuda" else "eager"
    step = Step(config, words_of(config, args.tiny), args.device, "32-true", way)
    for _ in range(args.warmup):
        step()
    synchronize(args.device)
    print("ready", flush=True)
    sys.stdin.readline()
    seconds = seconds_each(step, args.device, 0, 4 * args.steps)
    return {"seconds": seconds, "tokens_per_second": step.tokens / seconds}


def packed(args: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second of several processes together."""
    found: dict[str, Any] = {"experiment": args.experiment, "runs": {}}
    options = ["--device", args.device, "--steps", str(args.steps), *["--tiny"] * args.tiny]
    command = [sys.executable, __file__, "one_of_several", args.experiment, *options]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    for count in RUNS[:2] if args.tiny else RUNS:
        runs = [subprocess.Popen(command, **pipes) for _ in range(count)]
        for run in runs:
            run.stdout.readline()
        for run in runs:
            run.stdin.write("\n")
            run.stdin.flush()
        ends = [run.communicate()[0] for run in runs]
        if any(run.returncode for run in runs):
            found["runs"][count] = {"error": "a run failed; the log has its words"}
            continue
        rate = sum(json.loads(end.splitlines()[-1])["tokens_per_second"] for end in ends)
        found["runs"][count] = {"tokens_per_second": rate}
    rates = {count: run.get("tokens_per_second") for count, run in found["runs"].items()}
    found["of_one"] = {n: rate / rates[1] for n, rate in rates.items() if rate and rates[1]}
    return found


def packed_mps(args: argparse.Namespace) -> dict[str, Any]:
    """The same under NVIDIA's MPS, without which processes take turns on the device."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or args.device != "cuda":
        return {"says": "no nvidia-cuda-mps-control here"}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp()
    os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    subprocess.run([control, "-d"], check=True, stdout=subprocess.DEVNULL)
    try:
        return packed(args)
    finally:
        subprocess.run([control], input="quit\n", text=True, stdout=subprocess.DEVNULL)


def loss_memory(args: argparse.Namespace) -> dict[str, Any]:
    """MiB that MoS's loss takes above its inputs and their gradients, by K."""
    import torch

    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    from bench_loss_memory import Latents, made

    rows, emb_dim, words = (24, 8, 50) if args.tiny else (840, 280, 10_000)
    found = {}
    for count in (5, 15, 30):
        head = made(Latents(rows, count, emb_dim), words).to(args.device)
        targets_TB = torch.randint(words, (rows, 1), device=args.device)
        hidden_TBD = torch.zeros(rows, 1, 1, device=args.device)
        found[count] = {}
        for chunk_mb in (16, 256):
            head.zero_grad()
            head.chunk_mb = chunk_mb
            with peak_mb(args.device) as peak:
                head.nll(hidden_TBD, targets_TB).backward()
            grads_mb = sum(4 * p.numel() for p in head.parameters()) / 2**20
            found[count][f"mb_with_chunks_up_to_{chunk_mb}"] = peak[0] - grads_mb
    return found


WORK = {
    "experiment": experiment,
    "packed": packed,
    "packed_mps": packed_mps,
    "one_of_several": one_of_several,
    "loss_memory": loss_memory,
}


def main() -> None:
    """Prints what the named work finds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=WORK)
    parser.add_argument("experiment", nargs="?", default="penn_softmax")
    parser.add_argument("overrides", nargs="*", help="Hydra's, of the experiment")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    if args.tiny:
        args.warmup, args.steps = 1, 2
    print(json.dumps(WORK[args.work](args)))


if __name__ == "__main__":
    main()
