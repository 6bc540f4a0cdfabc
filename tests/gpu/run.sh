#!/usr/bin/env bash
# Everything that lmkit wants to know of a GPU, from a bare checkout, without a network, in pieces
# that go on where they were stopped:
#
#   tests/gpu/run.sh check|bench|spectrum|train|all [--minutes 9] [--results FOLDER] [...]
#
#   --minutes M        ends in time for a limit of M minutes; the same command goes on (9)
#   --results FOLDER   gets at most eight small files; what is there already counts as done
#   --work FOLDER      environment, runs and checkpoints (/tmp/lmkit-gpu); kept between commands
#   --wheels FOLDER    wheels of packages that the machine lacks (.wheels of the checkout)
#   --data FOLDER      holds penn/ and wikitext-2/ (LMKIT_DATA, or data/ of the checkout)
#   --only TEXT        pieces whose names contain it; --again: those that failed too
#   --device cpu --tiny   the same without a GPU, in a few minutes
#   -- OPTION=VALUE    the last words: options of `lmkit train` for the step train
#
# Where wheels come from, on a machine with a network: tests/gpu/wheels.sh .wheels
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=/tmp/lmkit-gpu
wheels=$root/.wheels
words=("$@")
for ((i = 0; i < ${#words[@]}; i++)); do
  case ${words[i]} in
    --) break ;;
    --work) work=${words[i + 1]:?--work needs a folder} ;;
    --wheels) wheels=${words[i + 1]:?--wheels needs a folder} ;;
  esac
done
mkdir -p "$work"
work=$(cd "$work" && pwd)

python=${PYTHON:-}
if [ -z "$python" ]; then
  for found in python3 python python3.12 python3.11; do
    if command -v "$found" >/dev/null && "$found" -c 'import torch' 2>/dev/null; then
      python=$found
      break
    fi
  done
fi
[ -n "$python" ] || { echo "error: no python3 on the PATH has torch; set PYTHON=..." >&2; exit 2; }

# Nothing is written to the checkout or the home folder, and nothing is fetched.
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1
export PYTHONPATH=$work/site:$root
export XDG_CACHE_HOME=$work/cache MPLCONFIGDIR=$work/cache/matplotlib MPLBACKEND=Agg
export TORCHINDUCTOR_CACHE_DIR=$work/cache/inductor TRITON_CACHE_DIR=$work/cache/triton
export WANDB_MODE=offline HF_HUB_OFFLINE=1 GIT_OPTIONAL_LOCKS=0
export TMPDIR=$work/tmp
mkdir -p "$work/site" "$TMPDIR" "$MPLCONFIGDIR"

# The environment: what the machine's Python has, and the wheels beside it.
if [ -d "$wheels" ]; then
  listed=$(cd "$wheels" && ls -l -- *.whl 2>/dev/null | cksum || true)
  if [ "$listed" != "$(cat "$work/site/.wheels" 2>/dev/null || true)" ]; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
      --disable-pip-version-check --root-user-action=ignore --target "$work/site" \
      "$wheels"/*.whl >&2 || { echo "error: the wheels in $wheels cannot be installed" >&2; exit 2; }
    echo "$listed" >"$work/site/.wheels"
  fi
fi

export LMKIT_STARTED_IN=$PWD # relative folders are relative to it
cd "$work" # not the checkout, which may be read-only
exec "$python" "$here/steps.py" --work "$work" "$@"
