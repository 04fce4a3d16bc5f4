#!/bin/bash
# Runs a command beside a Slurm of one node, which lives in a directory of its own and ends with it: no munge, no system
# service, no fixed port.
#
#   slurm_node.sh DIRECTORY COMMAND...
set -uo pipefail
directory=$1
shift
PATH=$PATH:/usr/sbin

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

user=$(id -un) host=$(hostname -s)
mkdir -p "$directory/state" "$directory/spool"
cat >"$directory/slurm.conf" <<CONF
ClusterName=fsdp2
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/none
CredType=cred/none
SlurmUser=$user
SlurmdUser=$user
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=localhost NodeHostname=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=main Nodes=localhost Default=YES OverSubscribe=FORCE:8 State=UP
CONF
export SLURM_CONF=$directory/slurm.conf

slurmctld -D -f "$SLURM_CONF" >"$directory/slurmctld.out" 2>&1 &
controller=$!
slurmd -D -f "$SLURM_CONF" -N localhost >"$directory/slurmd.out" 2>&1 &
daemon=$!
trap 'kill $daemon $controller 2>/dev/null; wait' EXIT

for _ in $(seq 400); do
  if sinfo --noheader --format %T 2>/dev/null | grep -q idle; then
    "$@"
    exit
  fi
  sleep 0.1
done
echo "slurm_node.sh: the node did not come up" >&2
tail -n 5 "$directory"/*.log "$directory"/*.out >&2
exit 99
