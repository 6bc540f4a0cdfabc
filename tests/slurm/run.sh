#!/usr/bin/env bash
# Runs the tests of this folder on a SLURM of one node, started for them and ended with them:
#   tests/slurm/run.sh PYTHON [PYTEST OPTIONS]
# Installs SLURM where it is missing. Ends well, having said why, where it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath --no-symlinks "$1")
shift

skip() {
  echo "SKIPPED: tests on SLURM: $1"
  exit 0
}

install() {
  [ "$(id -u)" = 0 ] || skip "they need root, to start a SLURM of their own"
  if command -v slurmctld && command -v munged; then return; fi >/dev/null
  command -v apt-get >/dev/null || skip "SLURM is not installed, and there is no apt-get"
  local packages=(slurm-wlm munge) log
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y --no-install-recommends "${packages[@]}" >"$log" 2>&1 ||
    { apt-get update && apt-get install -y --no-install-recommends "${packages[@]}"; } \
      >"$log" 2>&1 ||
    { tail -n 5 "$log"; skip "apt-get cannot install ${packages[*]}"; }
  rm "$log"
}

# Every process of this SLURM, its jobs and what they have started, is known by its environment.
# The oldest first would let children be adopted; so again until none is left.
members() {
  grep --null-data --files-with-matches --fixed-strings --line-regexp \
    "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null |
    cut -d / -f 3 | grep --invert-match --line-regexp -e $$ -e "$BASHPID" || true
}

stop() {
  local status=$? signal=TERM
  trap - EXIT INT TERM
  if [ "$status" != 0 ]; then tail -n 5 "$folder"/*.log 2>/dev/null || true; fi
  scancel --user=root >/dev/null 2>&1 || true
  for _ in $(seq 20); do
    # shellcheck disable=SC2046 # one word each
    kill -s $signal $(members) 2>/dev/null || break
    sleep 0.5
    signal=KILL
  done
  rm -rf "$folder"
  exit "$status"
}

wait_for() {
  for _ in $(seq 1500); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  echo "SLURM does not start: waited in vain for: $*"
  return 1
}

configure() {
  local host ports
  host=$(hostname -s)
  mapfile -t ports < <("$python" -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets), sep="\n")')
  mkdir -p "$folder"/{munge,state,spool}
  dd if=/dev/urandom of="$folder/munge/key" bs=128 count=1 status=none
  chmod 400 "$folder/munge/key"
  touch "$folder/cgroup.conf"
  # No accounts: the launcher must do without. Two processors, whatever the machine has.
  # A job is preempted by one of the partition `high`: it is warned as its --signal says, has 20 s,
  # and is queued again.
  cat >"$SLURM_CONF" <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=20
MessageTimeout=60
BatchStartTimeout=120
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=low Nodes=$host Default=YES PriorityTier=1 GraceTime=20
PartitionName=high Nodes=$host PriorityTier=9 PreemptMode=OFF
CONF
}

start() {
  munged --foreground --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" --log-file="$folder/munged.log" \
    --force >"$folder/munged.out" 2>&1 &
  wait_for munge --no-input --socket="$folder/munge/socket"
  slurmctld -D -i >"$folder/slurmctld.log" 2>&1 &
  slurmd -D -N "$(hostname -s)" >"$folder/slurmd.log" 2>&1 &
  wait_for sh -c 'sinfo --noheader --format=%T | grep -q idle'
}

install
folder=$(mktemp -d /tmp/slurm-XXXXXX)
export SLURM_CONF=$folder/slurm.conf
trap stop EXIT INT TERM
configure
start
sinfo --version
LMKIT_SLURM=1 timeout --kill-after=10 1800 "$python" -m pytest tests/slurm "$@" &
wait $! # and not pytest itself, so that a signal to this script is heard at once
