#!/usr/bin/env bash
# The tests marked gpu, a benchmark, or lmkit itself, from a bare checkout that is only read, without
# a network:
#
#   tests/gpu/run.sh                                   the tests; words are pytest's
#   tests/gpu/run.sh bench penn_softmax penn_mos --graphs    words of tests/benchmarks/bench_step.py
#   tests/gpu/run.sh lmkit train experiment=penn_softmax logger=csv data.root=FOLDER    any command
#
# WORK is the folder for all that is written (/tmp/lmkit-gpu), WHEELS one of packages that the machine
# lacks (.wheels of the checkout; tests/gpu/wheels.sh collects them where there is a network).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=${WORK:-/tmp/lmkit-gpu}
wheels=${WHEELS:-$root/.wheels}
python=${PYTHON:-python3}
mkdir -p "$work/tmp"

# Nothing is written to the checkout or the home folder, and nothing is fetched.
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1
export PYTHONPATH=$work/site:$root XDG_CACHE_HOME=$work/cache TMPDIR=$work/tmp
export MPLCONFIGDIR=$work/cache/matplotlib WANDB_MODE=offline HF_HUB_OFFLINE=1 GIT_OPTIONAL_LOCKS=0
if [ -d "$wheels" ]; then
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
    --disable-pip-version-check --root-user-action=ignore --target "$work/site" "$wheels"/*.whl >&2
fi

if [ "${1:-}" = bench ]; then
  cd "$work"
  exec "$python" -W ignore -m tests.benchmarks.bench_step --device cuda "${@:2}"
fi
if [ "${1:-}" = lmkit ]; then
  cd "$work" # runs lie in $WORK/runs; the same command goes on with one that was stopped
  exec "$python" -W ignore -m lmkit "${@:2}"
fi
# only files with such tests: others may want packages that the machine lacks
files=$(grep -rl --include='test_*.py' 'pytest\.mark\.gpu' "$root/tests")
cd "$work"
# shellcheck disable=SC2086
exec "$python" -W ignore -m pytest -c "$root/pyproject.toml" --rootdir "$root" -m gpu \
  -p no:cacheprovider --basetemp "$work/tmp/pytest" $files "$@"
