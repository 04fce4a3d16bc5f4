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
# Autograd would end by an assertion.
cat >"$TEST_TMPDIR/late.c" <<'PROGRAM'
#include <fsdp2/fsdp2.h>
#include <stdio.h>

int main(void) {
  static const float one = 1;
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_tensor leaf = {0}, sum = {0};
  fsdp2_value in, out;
  fsdp2_mesh mesh = {0};
  size_t n = 0;
  if (fsdp2_tensor_from_buffer(&one, sizeof(one), FSDP2_DTYPE_F32, NULL, 0, &leaf) != FSDP2_OK ||
      fsdp2_tensor_set_requires_grad(leaf, 1) != FSDP2_OK) {
    return 1;
  }
  in = (fsdp2_value)FSDP2_TENSOR(leaf);
  if (fsdp2_op_call("aten::clone", &in, 1, 0, (fsdp2_scope){0}, &out, 1, &n) != FSDP2_OK) {
    return 2;
  }
  sum = out.tensor;
  if (fsdp2_tensor_backward(sum) != FSDP2_OK) {
    return 3;
  }
  options.device_type = "cuda";
  puts(fsdp2_mesh_create(&options, &mesh) == FSDP2_E_WRONG_STATE ? "late" : fsdp2_error_message());
  return 0;
}
PROGRAM
gcc -Iinclude -o "$TEST_TMPDIR/late" "$TEST_TMPDIR/late.c" "$library"
said=$(env LD_LIBRARY_PATH="$TEST_TMPDIR:$libtorch:$TEST_TMPDIR/driver" FSDP2_CUDA_LIBRARY="$plugin" "$TEST_TMPDIR/late")
[[ $said == late ]] || fail "expected that GPUs cannot come after a backward, found: $said"

said=$(say)
[[ $said == *"libfsdp2_cuda.so could not be opened"* ]] || fail "expected a missing plug-in, found: $said"
said=$(say FSDP2_CUDA_LIBRARY="$libtorch/libc10.so")
[[ $said == *"libfsdp2_cuda.so is not a plug-in of libfsdp2"* ]] || fail "expected a library that is no plug-in, found: $said"
