#!/usr/bin/env bash
# A SLURM for tests, on loopback, with everything it writes in one folder. Needs root and Debian's packages slurm-wlm
# and munge; touches no system file.
#
#   slurm/test_cluster.sh start [--nodes 2]     # seconds; prints the line that points a shell at it; what died comes back
#   slurm/test_cluster.sh status
#   slurm/test_cluster.sh stop                  # ends the processes it started, by their ids
#
# Every node is a daemon of this machine with a port, folder and, where the kernel lets it, a host name of its own.
set -euo pipefail

folder=${TRACE_CLUSTER:-/tmp/trace-test-cluster}
port=${TRACE_CLUSTER_PORT:-26817}
export SLURM_CONF=$folder/slurm.conf
host=$(hostname -s)
nodes=1

need() {
  for program in munged slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || { echo "$program is missing: apt-get install slurm-wlm munge" >&2; exit 1; }
  done
  [ "$(id -u)" = 0 ] || { echo "root is needed to start slurmctld and slurmd" >&2; exit 1; }
}

# One node is this host, which listens on loopback alone; of several each has a name that no resolver knows.
name() { [ "$nodes" = 1 ] && echo "$host" || echo "node$1"; }

configure() {
  mkdir -p "$folder"/{munge,state,log}
  chmod 700 "$folder"/munge
  [ -s "$folder/munge/key" ] || (umask 077; head -c 1024 /dev/urandom > "$folder/munge/key")
  cat > "$SLURM_CONF" <<CONF
ClusterName=trace-test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
CommunicationParameters=NoCtldInAddrAny$([ "$nodes" != 1 ] || echo ,NoInAddrAny)
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
SlurmdTimeout=$([ "$nodes" = 1 ] && echo 300 || echo 5)
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=4096
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=3
MinJobAge=3600
MaxArraySize=10001
MaxJobCount=20000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10 State=UP
CONF
  local memory
  memory=$(($(free -m | awk '/^Mem/ {print $2}') - 512))
  for number in $(seq "$nodes"); do
    mkdir -p "$folder/spool.$(name "$number")"
    echo "NodeName=$(name "$number") NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + number)) CPUs=$(nproc --all)" \
      "RealMemory=$memory State=UNKNOWN" >> "$SLURM_CONF"
  done
}

# Whether the pid file $1 names a process that is still daemon $2 of this folder, and not somebody else's.
alive() {
  local process
  process=$(cat "$1" 2>/dev/null) && [ -n "$process" ] || return 1
  [ "$(cat "/proc/$process/comm" 2>/dev/null)" = "$2" ] && grep -qF "$folder" "/proc/$process/cmdline" 2>/dev/null
}

launch() {
  alive "$folder/munge/pid" munged || munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" || return 1
  alive "$folder/slurmctld.pid" slurmctld || slurmctld -f "$SLURM_CONF" || return 1
  for number in $(seq "$nodes"); do
    alive "$folder/slurmd.$(name "$number").pid" slurmd || node "$(name "$number")" || return 1
  done
  for _ in $(seq 1 200); do
    [ "$(sinfo -h -N -p normal -t idle,alloc,mix,drain -o %N 2>/dev/null | wc -l)" = "$nodes" ] && return 0
    sleep 0.1
  done
  echo "the nodes did not come up; if a port is taken, set TRACE_CLUSTER_PORT" >&2
  return 1
}

node() {
  if [ "$nodes" != 1 ] && unshare --uts true 2>/dev/null; then
    unshare --uts sh -c 'hostname "$0" && exec slurmd -N "$0" -f "$SLURM_CONF"' "$1"
  else
    slurmd -N "$1" -f "$SLURM_CONF"
  fi
}

end() {
  alive "$1" "$2" || return 0
  local process
  process=$(cat "$1")
  kill "$process"
  for _ in $(seq 1 50); do alive "$1" "$2" || return 0; sleep 0.1; done
  kill -9 "$process" 2>/dev/null || true
}

stop() {
  for pid in "$folder"/slurmd.*.pid; do end "$pid" slurmd; done
  end "$folder/slurmctld.pid" slurmctld
  end "$folder/munge/pid" munged
  [ ! -e "$SLURM_CONF" ] || rm -rf "$folder"
}

case ${1:-} in
  start)
    [ "${2:-}" != --nodes ] || nodes=${3:?how many}
    need
    configure
    launch && { echo "export SLURM_CONF=$SLURM_CONF"; exit 0; }
    tail -n 5 "$folder"/log/*.log >&2 || true
    stop
    exit 1 ;;
  stop)
    stop ;;
  status)
    for pid in "$folder"/munge/pid "$folder"/slurmctld.pid "$folder"/slurmd.*.pid; do
      name=$(basename "${pid/munge\/pid/munged.pid}" .pid)
      alive "$pid" "${name%%.*}" && echo "$name up" || echo "$name down"
    done
    sinfo 2>/dev/null || true ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2 ;;
esac
