#!/bin/sh
# Starts ranks with PyTorch's launcher. Python runs in the launcher only.
#
#   torchrun.sh static RANKS --save-dir DIR --save-every N MORE_OF_FSDP2_TRAIN...
#   torchrun.sh elastic RANKS --save-dir DIR --save-every N MORE_OF_FSDP2_TRAIN...
#
# The second form starts all ranks again when one has failed, up to 3 times; they go on from the newest checkpoint.
#
# On several nodes add --nnodes N --node-rank K --master-addr HOST --master-port PORT to the first form, and to the second
# --nnodes MIN:MAX --rdzv-id NAME --rdzv-endpoint HOST:PORT in place of what stands there.
set -eu
how=$1 ranks=$2
shift 2
case $how in
  static) set -- --nproc-per-node "$ranks" --master-addr 127.0.0.1 --master-port "${MASTER_PORT:-29500}" \
    fsdp2 train --resume auto "$@" ;;
  elastic)
    set -- --nnodes 1:1 --nproc-per-node "$ranks" --max-restarts 3 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 \
      fsdp2 train --resume auto "$@"
    ;;
  *) echo "torchrun.sh: expected static or elastic, found $how" >&2 && exit 2 ;;
esac
exec "${FSDP2_TORCHRUN:-torchrun}" --no-python "$@"
