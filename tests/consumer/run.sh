#!/bin/bash
# Uses libfsdp2 from a workspace of its own, which has nothing of libfsdp2's .bazelrc:
#
#   tests/consumer/run.sh            builds it anew, 20 minutes on 2 cores the first time, and runs the programs
#   tests/consumer/run.sh --analyze  only sees that all targets and repositories are found, as CI does, in half a minute
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly targets=(//c/... //java/... //rust/...)
trap '../../bazelw shutdown' EXIT
case ${1:-} in
  --analyze) ../../bazelw build --nobuild "${targets[@]}" ;;
  '') ../../bazelw test "${targets[@]}" ;;
  *) sed -n 's/^# \?//; 2,5p' run.sh && exit 2 ;;
esac
