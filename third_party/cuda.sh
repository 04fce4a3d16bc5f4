#!/bin/bash
# What libfsdp2_cuda.so is compiled with and linked to: CUDA's compiler and headers, NCCL, and the CUDA part of LibTorch.
#
#   cuda.sh             prints their directory (bin/, include/, lib/, nvvm/), which is fetched and unpacked first if need be
#   cuda.sh parts DIR   prints `NAME VERSION SHA256` of each package in it, and puts their licenses into DIR, as NAME-...
#
# CUDA comes out of pinned Python wheels, or is the toolkit in the directory FSDP2_CUDA. NCCL is always a wheel's. LibTorch's
# CUDA libraries lie in the `torch` wheel that libtorch.sh pins, or in FSDP2_LIBTORCH. No GPU and no driver are needed.
set -euo pipefail

readonly cuda_wheels='
nvidia-cuda-nvcc 13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-cuda-crt 13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-nvvm 13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-cccl 13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
'
readonly nccl_wheel='nvidia-nccl-cu13 2.28.9 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42'
# In wheels. LibTorch's headers are libtorch.sh's.
readonly wanted='nvidia/(cu13|nccl)/(bin|include|nvvm)/.*|(nvidia/(cu13|nccl)|torch)/lib/lib(cudart|nccl|c10_cuda|torch_cuda)\.so.*'

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FSDP2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libfsdp2}
source "$here/wheels.sh"

die() {
  echo "cuda.sh: $*" >&2
  exit 1
}

pinned_parts() {
  [[ -n ${FSDP2_CUDA:-} ]] || awk NF <<<"$cuda_wheels"
  echo "$nccl_wheel"
}

link_all() { cp --recursive --symbolic-link "$(realpath "$1")"/. "$2"; }  # FROM TO

link_toolkit() {  # DIRECTORY
  local folder
  for folder in bin include nvvm; do
    if [[ -d $FSDP2_CUDA/$folder ]]; then link_all "$FSDP2_CUDA/$folder" "$1/$folder"; fi
  done
  mkdir "$1/lib"
  ln -s "$(find "$(realpath "$FSDP2_CUDA")"/lib* -name 'libcudart.so.*' | sort | head -1)" "$1/lib/"
}

make_directory() {  # DIRECTORY: fills it
  [[ -z ${FSDP2_CUDA:-} ]] || link_toolkit "$1"
  local wheels=() wheel part
  while read -ra part; do
    wheel=$(fetch_part "${part[@]}")
    wheels+=("$wheel")
  done < <(pinned_parts)
  if [[ -z ${FSDP2_LIBTORCH:-} ]]; then
    wheel=$("$here/libtorch.sh" wheel)
    wheels+=("$wheel")
  fi
  unpack "$1" "$wanted" "${wheels[@]}"
  if [[ -n ${FSDP2_LIBTORCH:-} ]]; then
    ln -s "$(realpath "$FSDP2_LIBTORCH")"/lib/lib{c10,torch}_cuda.so "$1/lib/"
  fi
}

directory() {
  local key unpacked
  key=$(sha256sum <<<"$(pinned_parts)${FSDP2_CUDA:-}$("$here/libtorch.sh" version)${FSDP2_LIBTORCH:-}")
  unpacked=$cache/cuda-${key::12}
  if [[ ! -d $unpacked ]]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/cuda.XXXXXX")
    # Not behind ||, where the first failure would not end it.
    trap 'rm -rf "$work"' EXIT  # which sees no local variable
    make_directory "$work"
    chmod 755 "$work"
    mv -T "$work" "$unpacked" 2>/dev/null || true  # another build may have been faster
    [[ -d $unpacked ]] || die "$unpacked could not be made"
  fi
  echo "$unpacked"
}

if [[ -n ${FSDP2_CUDA:-} && ! -x $FSDP2_CUDA/bin/nvcc ]]; then
  die "FSDP2_CUDA=$FSDP2_CUDA holds no CUDA toolkit (expected bin/nvcc)"
fi
case ${1:-directory} in
  directory) directory ;;
  parts)
    [[ $# -eq 2 ]] || die "usage: cuda.sh parts DIRECTORY"
    mkdir -p "$2"
    pinned_parts | while read -ra part; do
      echo "${part[@]}"
      unpack_licenses "$(fetch_part "${part[@]}")" "$2/${part[0]}-"
    done
    ;;
  *) die "usage: cuda.sh [directory|parts DIRECTORY]" ;;
esac
