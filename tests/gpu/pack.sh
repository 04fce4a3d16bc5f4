#!/bin/bash
# pack.sh DIR [OUTPUTS]: makes DIR, which holds what a machine with a GPU and without Bazel needs to run the tests and benchmarks
# (run.py): the library, its CUDA plug-in, the tool, test programs, the golden suite, and the scripts. OUTPUTS is Bazel's folder of
# outputs, by default bazel-bin; of what it may hold, what has been built is taken. Prints what was packed and its size.
set -euo pipefail

readonly limit_mib=64  # that such a machine takes
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ $# -ge 1 && $# -le 2 ]] || { sed -n 's/^# \?//; 2,4p' "$0" >&2 && exit 2; }
to=$1 outputs=${2:-$repository/bazel-bin}

# The paths in the pack are those of the repository, which tests know, but for programs and libraries.
pack_program() {  # FROM TO
  mkdir -p "$(dirname "$to/$2")"
  strip -o "$to/$2" "$1"
  chmod 755 "$to/$2"
}

pack_library() {  # NAME
  mkdir -p "$to/lib"
  strip --strip-unneeded -o "$to/lib/$1" "$outputs/$1"
}

pack_scripts_and_data() {
  cd "$repository"
  cp --parents --recursive --dereference --no-preserve=mode tests/parity/golden tests/parity/exported tests/parity/scripted "$to"
  cp --parents --dereference --no-preserve=mode tests/gpu/*.py bench/*.py bench/gpu_activity.c bench/python/*.py "$to"
}

# Beside a program lie Bazel's files about it, such as the manifest of its runfiles.
is_program() {  # FILE
  [[ -f $1 && $(head --bytes 4 "$1" | tail --bytes 3) == ELF ]]
}

# Programs that use libfsdp2.so, and those made for a GPU. A test of the core holds half of LibTorch's headers' code itself.
is_for_a_gpu() {  # PROGRAM
  local wanted='NEEDED.*\[libfsdp2\.so'
  [[ $1 != */gpu/* ]] || wanted='NEEDED'
  readelf --dynamic "$1" 2>/dev/null | grep "$wanted" >/dev/null
}

[[ -e $outputs/libfsdp2.so && -e $outputs/cli/fsdp2-train ]] ||
  { echo "pack.sh: $outputs has no libfsdp2.so or no cli/fsdp2-train: ./bazelw build --config=cuda //:fsdp2 //cli:fsdp2" >&2 && exit 1; }
rm -rf "$to"
mkdir -p "$to"
to=$(cd "$to" && pwd)

pack_library libfsdp2.so
mv "$to/lib/libfsdp2.so" "$to/lib/libfsdp2.so.0"
if [[ -e $outputs/libfsdp2_cuda.so ]]; then
  pack_library libfsdp2_cuda.so
else
  echo "pack.sh: without libfsdp2_cuda.so, which has not been built: the pack runs on CPUs only" >&2
fi
for program in "$outputs"/cli/fsdp2 "$outputs"/cli/fsdp2-*[a-z]; do
  ! is_program "$program" || pack_program "$program" "bin/${program##*/}"
done
n_tests=0
for program in "$outputs"/tests/capi/*/*_test "$outputs"/tests/gpu/*_test; do
  if is_program "$program" && is_for_a_gpu "$program"; then
    pack_program "$program" "${program#"$outputs/"}"
    n_tests=$((n_tests + 1))
  fi
done
(pack_scripts_and_data)
git -C "$repository" describe --always --dirty --abbrev=12 >"$to/revision" 2>/dev/null || echo unknown >"$to/revision"

size_kib=$(du --summarize --apparent-size --block-size=1024 "$to" | cut -f 1)
echo "$to: $(((size_kib + 1023) / 1024)) MiB, $n_tests test programs, and $(cd "$to" && echo lib/* bin/*)"
if [[ $size_kib -ge $((limit_mib * 1024)) ]]; then
  echo "pack.sh: that is more than $limit_mib MiB" >&2
  exit 1
fi
