#!/usr/bin/env bash
# Collects the wheels that tests/gpu/run.sh needs on a Linux machine (x86-64) whose Python 3.12 has
# torch, pytorch-lightning, torchmetrics, transformers, tokenizers, numpy, scipy, pandas 3, jinja2,
# pyyaml, threadpoolctl, matplotlib, rich and pytest, and no network:
#
#   tests/gpu/wheels.sh .wheels [PACKAGE...]     PACKAGE: others that it lacks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:?usage: wheels.sh OUT [PACKAGE...]}
shift
python=${PYTHON:-python3}
packages=(hydra-core omegaconf submitit nltk platformdirs sacrebleu portalocker pydantic
  pydantic-core annotated-types typing-inspection "$@")
platforms=(manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64 any)
mkdir -p "$out"
# its release has no wheel
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$out" antlr4-python3-runtime==4.9.3
"$python" -m pip download --quiet --no-deps --dest "$out" --constraint constraints.txt \
  --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
  "${platforms[@]/#/--platform=}" "${packages[@]}"
ls -l "$out"
