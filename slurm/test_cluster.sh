#!/usr/bin/env bash
# A one-node SLURM for tests, on loopback, with everything it writes in one folder. Needs root and Debian's packages
# slurm-wlm and munge; touches no system file.
#
#   slurm/test_cluster.sh start     # seconds; prints the line that points a shell at it
#   slurm/test_cluster.sh status
#   slurm/test_cluster.sh stop      # ends the processes it started, by their ids
set -euo pipefail

folder=${TRACE_CLUSTER:-/tmp/trace-test-cluster}
port=${TRACE_CLUSTER_PORT:-26817}
export SLURM_CONF=$folder/slurm.conf
node=$(hostname -s)

need() {
  for program in munged slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || { echo "$program is missing: apt-get install slurm-wlm munge" >&2; exit 1; }
  done
  [ "$(id -u)" = 0 ] || { echo "root is needed to start slurmctld and slurmd" >&2; exit 1; }
}

configure() {
  mkdir -p "$folder"/{munge,state,spool,log}
  chmod 700 "$folder"/munge
  [ -s "$folder/munge/key" ] || (umask 077; head -c 1024 /dev/urandom > "$folder/munge/key")
  cat > "$SLURM_CONF" <<CONF
ClusterName=trace-test
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=3
MinJobAge=3600
MaxArraySize=10001
MaxJobCount=20000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(($(free -m | awk '/^Mem/ {print $2}') - 512)) State=UNKNOWN
PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10 State=UP
CONF
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
  alive "$folder/slurmctld.pid" slurmctld || slurmctld -c -f "$SLURM_CONF" || return 1
  alive "$folder/slurmd.pid" slurmd || slurmd -N "$node" -f "$SLURM_CONF" || return 1
  for _ in $(seq 1 100); do
    sinfo -h -o %T 2>/dev/null | grep -q idle && return 0
    sleep 0.2
  done
  echo "the node did not become idle; if a port is taken, set TRACE_CLUSTER_PORT" >&2
  return 1
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
  end "$folder/slurmd.pid" slurmd
  end "$folder/slurmctld.pid" slurmctld
  end "$folder/munge/pid" munged
  [ ! -e "$SLURM_CONF" ] || rm -rf "$folder"
}

case ${1:-} in
  start)
    need
    configure
    launch && { echo "export SLURM_CONF=$SLURM_CONF"; exit 0; }
    tail -n 5 "$folder"/log/*.log >&2 || true
    stop
    exit 1 ;;
  stop)
    stop ;;
  status)
    for name in munged slurmctld slurmd; do
      pid=$folder/$name.pid
      [ "$name" != munged ] || pid=$folder/munge/pid
      alive "$pid" "$name" && echo "$name up" || echo "$name down"
    done
    sinfo 2>/dev/null || true ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2 ;;
esac
