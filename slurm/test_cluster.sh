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

alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

case ${1:-} in
  start)
    need
    configure
    alive "$folder/munge/pid" || munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
      --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
    alive "$folder/slurmctld.pid" || slurmctld -c
    alive "$folder/slurmd.pid" || slurmd -N "$node"
    for _ in $(seq 1 100); do
      sinfo -h -o %T 2>/dev/null | grep -q idle && { echo "export SLURM_CONF=$SLURM_CONF"; exit 0; }
      sleep 0.2
    done
    tail -n 5 "$folder"/log/*.log >&2
    echo "the node did not become idle; if a port is taken, set TRACE_CLUSTER_PORT" >&2
    "$0" stop
    exit 1 ;;
  stop)
    for pid in "$folder"/slurmd.pid "$folder"/slurmctld.pid "$folder"/munge/pid; do
      alive "$pid" || continue
      process=$(cat "$pid")
      kill "$process"
      for _ in $(seq 1 50); do kill -0 "$process" 2>/dev/null || break; sleep 0.1; done
    done
    [ ! -e "$SLURM_CONF" ] || rm -rf "$folder" ;;
  status)
    for name in munge/pid slurmctld.pid slurmd.pid; do
      alive "$folder/$name" && echo "${name%pid} up" || echo "${name%pid} down"
    done
    sinfo 2>/dev/null || true ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2 ;;
esac
