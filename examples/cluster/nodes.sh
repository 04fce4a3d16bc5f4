#!/bin/sh
# Starts the ranks of one node of several, without any cluster software: run it on every node. After a failure run it again on
# every node: the job goes on from its newest checkpoint.
#
#   nodes.sh NODES NODE_RANK ADDRESS_OF_NODE_0 PORT RANKS_PER_NODE --save-dir DIR --save-every N MORE_OF_FSDP2_TRAIN...
set -eu
nodes=$1 node_rank=$2 address=$3 port=$4 ranks=$5
shift 5
exec fsdp2 run --nnodes "$nodes" --node-rank "$node_rank" --master-addr "$address" --master-port "$port" \
  --nproc-per-node "$ranks" -- fsdp2 train --resume auto "$@"
