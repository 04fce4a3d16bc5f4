#!/bin/bash
# Prints the directory of LibTorch 2.11.0 (include/ and lib/), which is fetched and unpacked first if need be.
#
# With FSDP2_LIBTORCH set it is that directory (a LibTorch archive or an installed `torch` Python package) after a check of
# its version. Otherwise LibTorch comes out of the pinned Python wheels: headers and the CPU libraries, without Python and
# without LibTorch's CUDA part. All libraries lie in one folder, where the loader finds them through $ORIGIN.
set -euo pipefail

readonly version=2.11.0
readonly torch_sha256=0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756
readonly cupti_sha256=4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
readonly cudart_sha256=7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FSDP2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libfsdp2}

if [[ -n ${FSDP2_LIBTORCH:-} ]]; then
  header=$FSDP2_LIBTORCH/include/torch/headeronly/version.h
  [[ -e $header ]] || header=$FSDP2_LIBTORCH/include/torch/csrc/api/include/torch/version.h
  if [[ ! -e $header || ! -e $FSDP2_LIBTORCH/lib/libtorch_cpu.so ]]; then
    echo "libtorch.sh: FSDP2_LIBTORCH=$FSDP2_LIBTORCH holds no LibTorch (expected include/torch and lib/libtorch_cpu.so)" >&2
    exit 1
  fi
  found=$(sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$header" | paste -sd .)
  if [[ $found != "$version" ]]; then
    echo "libtorch.sh: FSDP2_LIBTORCH=$FSDP2_LIBTORCH is LibTorch $found, expected $version" >&2
    exit 1
  fi
  realpath "$FSDP2_LIBTORCH"
  exit
fi

unpacked=$cache/libtorch-$version-${torch_sha256::12}
if [[ ! -d $unpacked ]]; then
  torch=$("$here/fetch.sh" wheel $torch_sha256 torch==$version)
  cupti=$("$here/fetch.sh" wheel $cupti_sha256 nvidia-cuda-cupti==13.0.85)
  cudart=$("$here/fetch.sh" wheel $cudart_sha256 nvidia-cuda-runtime==13.0.96)
  work=$(mktemp -d "$cache/libtorch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 - "$work" "$torch" "$cupti" "$cudart" <<'PYTHON'
import os, re, sys, zipfile
wanted = re.compile(r"torch/(include/.*[^/]|lib/lib(torch_cpu|c10)\.so|lib/libgomp.*)|nvidia/cu13/(lib/lib(cupti|cudart)\.so\.13)")
for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            found = wanted.fullmatch(name)
            if found:
                path = os.path.join(sys.argv[1], found[1] or found[3])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with archive.open(name) as source, open(path, "wb") as target:
                    while block := source.read(1 << 22):
                        target.write(block)
PYTHON
  chmod 755 "$work"
  mv -T "$work" "$unpacked" 2>/dev/null || [[ -d $unpacked ]]  # another build may have been faster
fi
echo "$unpacked"
