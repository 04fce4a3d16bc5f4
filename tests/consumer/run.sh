#!/bin/bash
# Uses libfsdp2, and its LibTorch alone, from workspaces of their own, which have nothing of libfsdp2's .bazelrc:
#
#   tests/consumer/run.sh            builds it anew, 20 minutes on 2 cores the first time, and runs the programs
#   tests/consumer/run.sh --analyze  only sees that all targets and repositories are found, as CI does, in a minute
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
bazelw=$(realpath ../../bazelw)

case ${1:-} in
  --analyze) command=(build --nobuild) ;;
  '') command=(test) ;;
  *) sed -n 's/^# \?//; 2,5p' run.sh && exit 2 ;;
esac

in_workspace() {  # FOLDER TARGET...
  local status=0
  (cd "$1" && "$bazelw" "${command[@]}" "${@:2}") || status=$?
  (cd "$1" && "$bazelw" shutdown)
  return $status
}

in_workspace libtorch //:all
in_workspace . //c/... //java/... //rust/...
