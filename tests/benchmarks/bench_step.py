"""Seconds and memory of a training step of published experiments, beside plain PyTorch.

    python -m tests.benchmarks.bench_step                       # PTB's heads, and a Transformer
    python -m tests.benchmarks.bench_step penn_mos windows.batch_size=20 --precisions 32-true
    python -m tests.benchmarks.bench_step --device cuda --graphs       # by CUDA graphs

A step is forward, objective, backward, clipping and the optimizer's. lmkit and the plain
implementation, which takes float32 alone, have their steps in turn within one process, so that what
else the machine does meets both; the ratio is the median of those of neighbouring steps. Peak
memory is the operating system's (getrusage) on a CPU, the allocator's on a GPU, of a process for
each implementation. The roofline is the time of the matrix products alone, at the rate of one large
product of the precision's type, as a share of the step's.

Shapes: T window length, B batch, V vocabulary.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from lmkit.experiment.model_size import model_sizes, model_without_weights
from lmkit.experiment.objects import make_model
from lmkit.heads.predictor import trainable
from lmkit.kernels.cpu_products import product
from lmkit.training.callbacks.cuda_graphs import RecordedStep, cuda_recorder
from tests.benchmarks import plain_model, plain_transformer
from tests.tiny import composed

EXPERIMENTS = ("penn_softmax", "penn_ss", "penn_gss", "penn_lms_plif", "penn_mos", "penn_mixtape")
EXPERIMENTS += ("penn_transformer",)
PRECISIONS = ("32-true", "tf32", "bf16-mixed")
NUM_WORDS = {"penn": 10_000, "wikitext-2": 33_278}
TRANSFORMS = {  # by class, as the plain implementation calls them
    "Identity": "identity",
    "SigSoftmax": "sigsoftmax",
    "GeneralizedSigSoftmax": "gss",
    "PiecewiseLinear": "plif",
}
PLAIN = ("Head", "SingleContext", "MixtureOfSoftmaxes", *TRANSFORMS)  # what it can do
Config = dict[str, Any]
Step = Callable[[], None]


def configuration(experiment: str, overrides: Sequence[str]) -> Config:
    return composed(f"experiment={experiment}", "logger=csv", *overrides)


def words_of(config: Config) -> int:
    """V."""
    return NUM_WORDS[config["data"]["name"]]


def window(config: Config, device: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets (T, B), drawn by Zipf's law."""
    length, batch = config["windows"]["bptt"], config["windows"]["batch_size"]
    weights = 1 / torch.arange(1.0, words_of(config) + 1)
    words = torch.multinomial(weights, (length + 1) * batch, replacement=True)
    words = words.view(length + 1, batch).to(device)
    return words[:-1].clone(), words[1:].clone()


def use_tf32(on: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = on


def lmkit_step(config: Config, device: str, precision: str, graphs: bool = False) -> Step:
    """A step as lmkit's LightningModule does it, without Lightning."""
    counts_V = (1e6 / torch.arange(1, words_of(config) + 1)).long()
    model = make_model(config, counts_V).to(device).train()
    optimizer, clip = model.configure_optimizers(), config["trainer"]["gradient_clip_val"]
    parameters = list(trainable(model).values())
    words_TB, targets_TB = window(config, device)
    state = [x for layer in model.trunk.initial_state(words_TB.shape[1]) for x in layer]
    work = RecordedStep(model.step, parameters, cuda_recorder()) if graphs else model.step

    def step() -> None:
        nonlocal state
        use_tf32(precision == "tf32")
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16-mixed"):
            loss, _, _, *state = work(words_TB, targets_TB, *state)
        if graphs:  # the next replay overwrites them
            state = [x.clone() for x in state]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()

    return step


def plain_of(config: Config) -> nn.Module | None:
    """The model in plain PyTorch; None where there is no such implementation."""
    trunk, head = config["trunk"], config["head"]
    sections = (head, head["mixture"], head["transform"])
    kinds = [section["_target_"].rpartition(".")[2] for section in sections]
    if not set(kinds) <= set(PLAIN):
        return None
    experts, latent_dropout = (
        head["mixture"].get(name, 0) for name in ("num_experts", "latent_dropout")
    )
    names = ("embed", "input", "hidden", "output")
    dropouts = tuple(trunk[f"{name}_dropout"] for name in names)
    if "num_heads" in trunk:
        names = ("emb_dim", "num_layers", "num_heads", "ffn_dim", "memory")
        sizes = [trunk[name] for name in names]
        return plain_transformer.PlainTransformer(
            words_of(config), *sizes, dropouts, experts, latent_dropout
        )
    sizes = [trunk[name] for name in ("emb_dim", "hidden_dim", "out_dim", "num_layers")]
    knots = head["transform"].get("knots", 0)
    return plain_model.PlainModel(
        *(words_of(config), *sizes, *dropouts, trunk["weight_dropout"]),
        *(TRANSFORMS[kinds[2]], experts, latent_dropout, knots),
    )


def plain_step(config: Config, device: str) -> Step | None:
    """A step of the plain implementation in float32; None where there is none."""
    model = plain_of(config)
    if model is None:
        return None
    model.to(device)
    options, objective = config["optimizer"], config["objective"]
    words_TB, targets_TB = window(config, device)
    state = model.initial_state(words_TB.shape[1])
    lr, decay = options["lr"], options["weight_decay"]
    if isinstance(model, plain_transformer.PlainTransformer):
        matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) is is_matrix]
                             for is_matrix in (True, False))  # fmt: skip
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=lr, weight_decay=decay)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, weight_decay=decay)
    rest = objective["ar_weight"], objective["tar_weight"], config["trainer"]["gradient_clip_val"]

    def step() -> None:
        nonlocal state
        use_tf32(False)
        _, state = plain_model.train_step(model, optimizer, words_TB, targets_TB, state, *rest)

    return step


def seconds(step: Step, device: str) -> float:
    """Of one step by the clock, all that it gives the device included."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def matmul_rate(device: str, precision: str, side: int = 2048) -> float:
    """FLOP a second of a large square matrix product: the best of eight."""
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    use_tf32(precision == "tf32")
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / min(seconds(lambda: product(a, b), device) for _ in range(8))


def timed(config: Config, precision: str, args: argparse.Namespace) -> dict[str, float]:
    """Medians of the steps in turn, and the share of the roofline."""
    steps = {"lmkit": lmkit_step(config, args.device, precision, args.graphs)}
    if (plain := plain_step(config, args.device)) is not None:
        steps["plain"] = plain
    taken = [
        {name: seconds(step, args.device) for name, step in steps.items()}
        for _ in range(args.warmup + args.steps)
    ][args.warmup :]
    found = {name: statistics.median(each[name] for each in taken) for name in steps}
    if plain is not None:
        found["ratio"] = statistics.median(each["plain"] / each["lmkit"] for each in taken)
    size = model_sizes(model_without_weights(config, words_of(config)))["total"]
    tokens = config["windows"]["bptt"] * config["windows"]["batch_size"]
    rate = matmul_rate(args.device, precision)
    return found | {"tokens": tokens, "roofline": size.training_flops * tokens / rate}


def peak_mb(step: Step, device: str) -> float:
    """Of two steps, the second with the optimizer's state."""
    step()
    step()
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_a_process(words: Sequence[str], precision: str, what: str, args: argparse.Namespace) -> Any:
    """What one child process measures."""
    options = ["--child", what, "--precisions", precision, "--device", args.device]
    options += ["--threads", str(args.threads), "--steps", str(args.steps)]
    options += ["--warmup", str(args.warmup), *["--graphs"] * args.graphs]
    # the plain implementation in PyTorch's own memory, not as lmkit asks for it
    environment = os.environ | ({"THP_MEM_ALLOC_ENABLE": "0"} if what == "plain" else {})
    command = [sys.executable, "-m", "tests.benchmarks.bench_step", *words, *options]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def child(config: Config, args: argparse.Namespace) -> Any:
    torch.manual_seed(0)
    precision = args.precisions[0]
    if args.child == "time":
        return timed(config, precision, args)
    step = plain_step(config, args.device)
    if args.child == "lmkit":
        step = lmkit_step(config, args.device, precision, args.graphs)
    return None if step is None else peak_mb(step, args.device)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="experiments, and Hydra's overrides of them")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["32-true"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--graphs", action="store_true", help="lmkit's steps as CUDA graphs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--child", choices=("time", "lmkit", "plain"), help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> None:
    """A row for each experiment and precision."""
    args = parsed()
    torch.set_num_threads(args.threads)
    overrides = [word for word in args.words if "=" in word]
    experiments = [word for word in args.words if "=" not in word] or EXPERIMENTS
    if args.child:
        print(json.dumps(child(configuration(experiments[0], overrides), args)))
        return
    rows = []
    for experiment in experiments:
        words = [experiment, *overrides]
        plain_mb = in_a_process(words, "32-true", "plain", args)
        for precision in args.precisions:
            time = in_a_process(words, precision, "time", args)
            row = {"experiment": experiment, "precision": precision, "s a step": time["lmkit"]}
            row["tokens/s"] = time["tokens"] / time["lmkit"]
            row["MiB"] = in_a_process(words, precision, "lmkit", args)
            row |= {"plain s": time.get("plain"), "plain MiB": plain_mb}
            row["x faster"] = time.get("ratio")
            rows.append(row | {"roofline": time["roofline"] / time["lmkit"]})
            print(f"{experiment}, {precision}: measured", file=sys.stderr)
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:,.4g}".format, na_rep="-"))


if __name__ == "__main__":
    main()
