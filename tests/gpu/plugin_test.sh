#!/bin/bash
# libfsdp2.so opens libfsdp2_cuda.so, and with it a LibTorch with CUDA: where there is no GPU, that is all that is left to say.
#
#   plugin_test.sh LIBFSDP2 LIBFSDP2_CUDA FSDP2
set -euo pipefail

fail() {
  echo "$1" >&2
  exit 1
}

library=$(realpath "$1") plugin=$(realpath "$2") tool=$(realpath "$3")

exported=$(nm --dynamic --defined-only "$plugin" | awk '{ print $3 }')
[[ $exported == fsdp2_get_device_plugin ]] || fail "the plug-in exports more than its one symbol: $exported"
readelf --dynamic "$plugin" | grep --quiet 'NEEDED.*libtorch_cuda.so' || fail "the plug-in does not bring LibTorch's CUDA operators"

python=$(tests/parity/python_environment.sh --install) || {
  echo "SKIPPED: the Python environment could not be made: tests/parity/python_environment.sh --install"
  exit 0
}
libtorch=$("$python" -c 'import importlib.util as u, os; print(os.path.join(os.path.dirname(u.find_spec("torch").origin), "lib"))')

# Stands in for the driver, which only a machine with a GPU has; CUDA finds no device by it.
mkdir "$TEST_TMPDIR/driver" "$TEST_TMPDIR/model"
gcc -shared -x c /dev/null -o "$TEST_TMPDIR/driver/libcuda.so.1"
ln -s "$library" "$TEST_TMPDIR/libfsdp2.so.0"

say() {  # what fsdp2 train says on a GPU, with VARIABLE=VALUE... in its environment
  env LD_LIBRARY_PATH="$TEST_TMPDIR:$libtorch:$TEST_TMPDIR/driver" "$@" "$tool" train --device cuda --steps 1 --seq-len 32 \
    --global-batch 4 --model tests/parity/golden/models/tiny-llama --tokens tests/parity/golden/tokens/tiny-llama.bin 2>&1 || true
}

said=$(say FSDP2_CUDA_LIBRARY="$plugin")
if [[ $said != *"found no such device"* && $said != *'"device":"cuda"'* ]]; then
  fail "expected a missing device or a step on a GPU, found: $said"
fi
said=$(say)
[[ $said == *"libfsdp2_cuda.so could not be opened"* ]] || fail "expected a missing plug-in, found: $said"
said=$(say FSDP2_CUDA_LIBRARY="$libtorch/libc10.so")
[[ $said == *"libfsdp2_cuda.so is not a plug-in of libfsdp2"* ]] || fail "expected a library that is no plug-in, found: $said"
