#!/bin/bash
# LibTorch: 2.11.0, or the version that FSDP2_LIBTORCH_VERSION names (2.15.0, or 2.15 for the pinned one of that minor).
#
#   libtorch.sh            prints its directory (include/ and lib/), which is fetched and unpacked first if need be
#   libtorch.sh standard   prints the C++ standard that its headers ask for, as c++17
#   libtorch.sh version    prints its version
#   libtorch.sh wheel      prints the file of the pinned `torch` wheel that it is unpacked from
#   libtorch.sh parts DIR  prints `NAME VERSION [SHA256]` of each package in it, and puts their licenses into DIR, as NAME-...
#
# With FSDP2_LIBTORCH set it is that directory (a LibTorch archive or an installed `torch` Python package) after a check of
# its version, which may be any of those minors. Otherwise LibTorch comes out of the pinned Python wheels: headers and the CPU
# libraries, without Python and the GPU part. All libraries lie in one folder, where the loader finds them through $ORIGIN.
set -euo pipefail

# torch, its sha256, and the CUDA runtime and CUPTI that it is linked to. The first is the default.
readonly pins='
2.11.0 0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756 13.0.96 13.0.85
2.12.1 649e4ced014ba646f76f8cb9c9726735a6323eb321b7919f942790a923f90921 13.0.96 13.0.85
2.13.0 796633c4cdf0fe2cdced72d8f88f22e73dbcfce83132763162f6d4bff13b820b 13.0.96 13.0.85
2.14.1 23011fe29a99b591eabb3a31a25080c62e2c2f0690a3c798744e5489dae50451 13.0.96 13.0.85
2.15.0 6d8c86f4e33a9f12a58149bd9b0d64351632b8eb44479be8ff85e5389932dd79 13.2.86 13.2.86
'
declare -rA runtime_sha256=(
  [13.0.96]=7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
  [13.2.86]=3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0
)
declare -rA cupti_sha256=(
  [13.0.85]=4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
  [13.2.86]=8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586
)
readonly wanted_files='torch/(include/.*|lib/lib(torch_cpu|c10)\.so|lib/libgomp.*)|nvidia/cu13/lib/lib(cupti|cudart)\.so\.13'

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FSDP2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libfsdp2}
source "$here/wheels.sh"
wanted=${FSDP2_LIBTORCH_VERSION:-}

die() {
  echo "libtorch.sh: $*" >&2
  exit 1
}

known_versions() { awk 'NF { print $1 }' <<<"$pins" | paste -sd ' '; }

# pin VERSION: its line of the table; VERSION may leave the patch out.
pin() { awk -v wanted="$1" 'NF && ($1 == wanted || index($1, wanted ".") == 1) && !found { print; found = 1 }' <<<"$pins"; }

standard_of() {  # VERSION
  if [[ ${1#2.} -ge 14 ]]; then echo c++20; else echo c++17; fi
}

version_of() {  # DIRECTORY
  local header=$1/include/torch/headeronly/version.h
  [[ -e $header ]] || header=$1/include/torch/csrc/api/include/torch/version.h
  [[ -e $header && -e $1/lib/libtorch_cpu.so ]] ||
    die "FSDP2_LIBTORCH=$1 holds no LibTorch (expected include/torch and lib/libtorch_cpu.so)"
  sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$header" | paste -sd .
}

pinned_parts() {  # VERSION SHA256 RUNTIME_VERSION CUPTI_VERSION: NAME VERSION SHA256 of each wheel
  echo "torch $1 $2"
  echo "nvidia-cuda-runtime $3 ${runtime_sha256[$3]}"
  echo "nvidia-cuda-cupti $4 ${cupti_sha256[$4]}"
}

# Those of a Python package lie beside it; a LibTorch archive may have none.
copy_own_licenses() {  # PREFIX
  local file
  for file in "$FSDP2_LIBTORCH"/{LICENSE,NOTICE}* "$FSDP2_LIBTORCH"/../torch-*.dist-info/licenses/*; do
    if [[ -f $file ]]; then cp "$file" "$1$(basename "$file")"; fi
  done
}

fetch_pinned() {  # VERSION SHA256 RUNTIME_VERSION CUPTI_VERSION: prints the directory
  local unpacked=$cache/libtorch-$1-${2::12} work
  if [[ ! -d $unpacked ]]; then
    local wheels=() wheel part
    while read -ra part; do
      wheel=$(fetch_part "${part[@]}")
      wheels+=("$wheel")
    done < <(pinned_parts "$@")
    work=$(mktemp -d "$cache/libtorch.XXXXXX")
    unpack "$work" "$wanted_files" "${wheels[@]}" || { rm -rf "$work"; exit 1; }
    chmod 755 "$work"
    mv -T "$work" "$unpacked" 2>/dev/null || rm -rf "$work"  # another build may have been faster
    [[ -d $unpacked ]] || die "$unpacked could not be made"
  fi
  echo "$unpacked"
}

if [[ -n ${FSDP2_LIBTORCH:-} ]]; then
  version=$(version_of "$FSDP2_LIBTORCH")
  [[ -n $(pin "${version%.*}") ]] ||
    die "FSDP2_LIBTORCH=$FSDP2_LIBTORCH is LibTorch $version, expected one of the minors of $(known_versions)"
  [[ -z $wanted || $version == "$wanted" || $version == "$wanted".* ]] ||
    die "FSDP2_LIBTORCH=$FSDP2_LIBTORCH is LibTorch $version, expected $wanted, which FSDP2_LIBTORCH_VERSION names"
else
  read -r version sha256 runtime cupti <<<"$(pin "${wanted:-2.11.0}")"
  [[ -n ${version:-} ]] || die "FSDP2_LIBTORCH_VERSION=$wanted: expected one of $(known_versions), or a directory in FSDP2_LIBTORCH"
fi

case ${1:-directory} in
  version) echo "$version" ;;
  wheel) fetch_part torch "$version" "$sha256" ;;
  standard) standard_of "${version%.*}" ;;
  directory)
    if [[ -n ${FSDP2_LIBTORCH:-} ]]; then
      realpath "$FSDP2_LIBTORCH"
    else
      fetch_pinned "$version" "$sha256" "$runtime" "$cupti"
    fi
    ;;
  parts)
    [[ $# -eq 2 ]] || die "usage: libtorch.sh parts DIRECTORY"
    mkdir -p "$2"
    if [[ -n ${FSDP2_LIBTORCH:-} ]]; then
      echo "torch $version"
      copy_own_licenses "$2/torch-"
    else
      pinned_parts "$version" "$sha256" "$runtime" "$cupti" | while read -ra part; do
        echo "${part[@]}"
        unpack_licenses "$(fetch_part "${part[@]}")" "$2/${part[0]}-"
      done
    fi
    ;;
  *) die "usage: libtorch.sh [directory|standard|version|wheel|parts DIRECTORY]" ;;
esac
