"""A training step of every head and trunk on a GPU that is not there: devices, types and waits.

    python tests/gpu/rehearse.py                                every head, trunk and precision
    python tests/gpu/rehearse.py --heads mixtape --trunks awd_lstm --verbose

It needs a CUDA build of PyTorch and a C compiler, and no GPU: tensors have no values (faked.py),
and the CUDA runtime has a stand-in with one device (stand_in_device.c), so that backward passes and
`torch.autograd.grad` run on the threads that they have on a GPU. A line for each case says `ok`, or
what is wrong: an operation over two devices, an error, or a wait of the host for the device within
a window that is not logged.

Not rehearsed: what kernels compute and how long they take, cuDNN's LSTM itself, CUDA graphs,
`trainer.deterministic=true`, and memory.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PRELOADED = "LMKIT_STAND_IN_DEVICE"
sys.path[:0] = [str(ROOT), str(HERE)]

TRUNKS = ("awd_lstm", "transformer")
PRECISIONS = ("32-true", "bf16-mixed")
SIZES = ["data=penn", "trunk.emb_dim=400", "trunk.hidden_dim=1150", "trunk.out_dim=400"]
SMALL = ["data=penn", "trunk.emb_dim=40", "trunk.hidden_dim=64", "trunk.out_dim=40"]
SMALL += ["head.chunk_mb=4"]  # as many chunks of a window as at full sizes


class Case(NamedTuple):
    """One of every head with every trunk, in one precision."""

    head: str
    trunk: str
    precision: str
    overrides: list[str]

    def __str__(self) -> str:
        return f"{self.head} on {self.trunk}, {self.precision}"


def heads() -> dict[str, list[str]]:
    """Every head that `conf/head` knows: each mixture with each transform, and every other."""
    conf = ROOT / "conf" / "head"

    def names(folder: Path) -> list[str]:
        return sorted(path.stem for path in folder.glob("*.yaml"))

    found = {
        f"{mixture}+{transform}": [f"head/mixture={mixture}", f"head/transform={transform}"]
        for mixture in names(conf / "mixture")
        for transform in names(conf / "transform")
    }
    for head in names(conf):
        if head != "default":
            for transform in ("identity", "gss", "plif", "monotone_mlp"):
                found[f"{head}+{transform}"] = [f"head={head}", f"head/transform={transform}"]
    found["decoder of rank 8, softmaxes"] = [
        "head.decoder_rank=8",
        "head.tie_weights=false",
        "head/mixture=softmaxes",
    ]
    return found


def cases(args: argparse.Namespace) -> list[Case]:
    sizes = SMALL if args.small else SIZES
    found = []
    for trunk in args.trunks:
        layers = ["trunk.num_layers=3"]
        for head, chosen in heads().items():
            if args.heads and not any(head.startswith(name) for name in args.heads):
                continue
            extra = ["trunk.embedding_noise=0.15", *layers, f"windows.batch_size={args.batch}"]
            overrides = [*sizes, f"trunk={trunk}", *chosen, *extra]
            found += [Case(head, trunk, p, overrides) for p in args.precisions]
    return found


def preload() -> None:
    """Starts this program anew on the stand-in for the CUDA runtime."""
    package = Path(sysconfig.get_path("purelib"))
    headers = [*package.glob("nvidia/*/include"), package / "triton/backends/nvidia/include"]
    if not (package / "triton").exists():
        raise SystemExit("rehearse.py needs a CUDA build of PyTorch: pip install torch==2.11.0")
    library = Path(tempfile.mkdtemp()) / "stand_in_device.so"
    source = str(HERE / "stand_in_device.c")
    includes = [f"-I{folder}" for folder in headers]
    options = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *options, *includes, source, "-o", str(library)], check=True)
    os.environ |= {"LD_PRELOAD": str(library), PRELOADED: "1"}
    os.execv(sys.executable, [sys.executable, *sys.argv])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", nargs="*", default=[], help="those whose name begins so")
    parser.add_argument("--trunks", nargs="+", default=TRUNKS, choices=TRUNKS)
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--window", type=int, default=70)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--small", action="store_true", help="small sizes, for a quick look")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--verbose", action="store_true", help="launches and waits of each phase")
    return parser.parse_args()


def main() -> int:
    """Rehearses every case that is asked for; 1 where one fails."""
    args = arguments()
    if args.device == "cuda" and PRELOADED not in os.environ:
        preload()
    warnings.filterwarnings("ignore")
    failed: Counter[str] = Counter()
    for case in cases(args):
        outcome = in_a_process(case, args)
        failed["ok" if outcome.startswith("ok") else "failed"] += 1
        print(f"{case}: {outcome}", flush=True)
    print(f"{failed['ok']} ok, {failed['failed']} failed")
    return 1 if failed["failed"] else 0


def in_a_process(case: Case, args: argparse.Namespace, attempts: int = 3) -> str:
    """What `rehearse` returns, in a process of its own.

    Fake tensors that die while another thread goes backward may take the process with them. That is
    PyTorch's: such a case is tried again.
    """
    from rehearsal import rehearse  # torch, once the device is there

    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        gc.disable()
        os.write(writing, rehearse(case, args).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        outcome = pipe.read()
    _, status = os.waitpid(child, 0)
    if outcome or attempts == 1:
        return outcome or f"the process ended with status {status}"
    return in_a_process(case, args, attempts - 1)


def composed(case: Case) -> dict[str, Any]:
    from lmkit.cli.entry import compose, plain_config

    return plain_config(compose("train", [*case.overrides, f"trainer.precision={case.precision}"]))


if __name__ == "__main__":
    sys.exit(main())
