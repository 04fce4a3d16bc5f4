#!/bin/bash
# Every kernel of libfsdp2_cuda.so has machine code for the A100 (sm_80) and the H100 (sm_90), and PTX, which the driver compiles for
# newer GPUs: a GPU for which one is missing would fail at that kernel's first call, or compile it anew in each process.
#
#   machine_code_test.sh LIBFSDP2_CUDA
set -euo pipefail

python=$(tests/parity/python_environment.sh --install) || {
  echo "SKIPPED: the Python environment could not be made: tests/parity/python_environment.sh --install"
  exit 0
}
cuobjdump=$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("triton").origin))')/backends/nvidia/bin/cuobjdump
[[ -x $cuobjdump ]] || {
  echo "SKIPPED: the Python environment's triton has no cuobjdump"
  exit 0
}
library=$(realpath "$1")

"$cuobjdump" -res-usage "$library" | awk '
  /^arch = / { arch = $3 }
  /^ *Function .*:$/ { sub(":", "", $2); print arch, $2 }' >"$TEST_TMPDIR/machine_code"
"$cuobjdump" -ptx "$library" |
  sed -n 's/.*\.entry \([A-Za-z0-9_$]*\).*/ptx \1/p' >>"$TEST_TMPDIR/machine_code"

kernels_of() {  # sm_80 | sm_90 | ptx
  awk -v kind="$1" '$1 == kind { print $2 }' "$TEST_TMPDIR/machine_code" | sort -u
}

kernels=$(awk '{ print $2 }' "$TEST_TMPDIR/machine_code" | sort -u)
[[ -n $kernels ]] || { echo "expected kernels in $library, found none" >&2 && exit 1; }
for kind in sm_80 sm_90 ptx; do
  missing=$(comm -23 <(echo "$kernels") <(kernels_of "$kind"))
  [[ -z $missing ]] || { echo "kernels without $kind: $missing" >&2 && exit 1; }
done
echo "$(wc -l <<<"$kernels") kernels, each for sm_80 and sm_90 and as PTX"
