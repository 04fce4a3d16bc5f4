#!/bin/bash
# What an installed prefix holds: no folder of the build, a library that finds LibTorch, an SBOM and licenses of what is linked.
source tests/install/installed.sh
need gcc

fail() {
  echo "$*" >&2
  exit 1
}

install_to "$work/old" # a second installation takes the place of the first
install_to "$work/old"
use_prefix "$work/old"

runpath() { readelf -d "$1" | sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]$/\2/p'; }

[[ $(runpath "$prefix/lib/libfsdp2.so.0") == "\$ORIGIN:\$ORIGIN/fsdp2/libtorch/lib" ]] ||
  fail "the library's run path is $(runpath "$prefix/lib/libfsdp2.so.0")"
for program in "$prefix"/bin/*; do
  [[ $(runpath "$program") == "\$ORIGIN/../lib" ]] || fail "the run path of $program is $(runpath "$program")"
done
if grep -rlaE "bazel-out|_solib_|$libtorch_lib|$root" "$prefix"/{bin,include,lib/*.so.*,lib/cmake,lib/pkgconfig}; then
  fail "these name a folder of the build"
fi
if readelf -d "$prefix/bin/fsdp2" | grep NEEDED | grep -E "torch|c10|fsdp2"; then
  fail "the launcher loads more than it needs"
fi
"$prefix/bin/fsdp2" --version | grep "^libtorch: " >/dev/null || fail "the tool does not run"
[[ $(readlink "$prefix/lib/libfsdp2.so") == libfsdp2.so.0 ]] || fail "libfsdp2.so does not lead to libfsdp2.so.0"
for page in README mesh shard checkpoint; do
  [[ -s $prefix/share/doc/fsdp2/docs/api/$page.md ]] || fail "the API reference lacks $page.md"
done
[[ -s $prefix/share/doc/fsdp2/docs/troubleshooting.md ]] || fail "the pages of docs are not installed"
python3 tests/install/links.py "$prefix/share/doc/fsdp2" || fail "the installed pages have links to what is not installed"
for example in c/train.c cluster/torchrun.sh rust/train.rs yaml/plain.yaml data/opticks.txt; do
  cmp "examples/$example" "$prefix/share/doc/fsdp2/examples/$example" || fail "the examples lack $example"
done
[[ -x $prefix/share/doc/fsdp2/examples/cluster/torchrun.sh ]] || fail "scripts cannot be run"
(cd "$(dirname "$archive")" && sha256sum --check --strict SHA256SUMS)

python3 - "$prefix" "$3" <<'PYTHON'
import json, os, sys

prefix, libtorch_version = sys.argv[1:]
with open(f"{prefix}/share/doc/fsdp2/sbom.cdx.json") as file:
    sbom = json.load(file)
components = {component["name"]: component for component in sbom["components"]}
expected = {"cli11", "gloo", "libdeflate", "libjpeg_turbo", "libpng", "nlohmann_json", "torch", "xxhash", "zlib"}
assert expected <= set(components), components.keys()
assert components["torch"]["version"].split("+")[0] == libtorch_version, components["torch"]
inside = {component["name"]: component for component in components["torch"]["components"]}
for name in ("mkl", "onednn"):
    assert inside[name]["version"], inside[name]
for component in sbom["components"]:
    assert component["licenses"], component
licenses = f"{prefix}/share/licenses/fsdp2"
for folder in ("cli11", "gloo", "libdeflate", "libjpeg_turbo", "libpng", "nlohmann_json", "xxhash", "zlib"):
    assert os.listdir(f"{licenses}/{folder}"), folder
assert os.path.exists(f"{licenses}/LICENSE")
PYTHON

# With a LibTorch of the process's own, the prefix's is not loaded beside it, and need not be there.
gcc -std=c99 -D_GNU_SOURCE -Wall -Wextra -Werror "-I$prefix/include" tests/install/embedding.c -ldl -o "$work/embedding"
install_to --copy-libtorch "$work/copy"
[[ ! -L $work/copy/lib/fsdp2/libtorch ]] || fail "LibTorch was not copied"
"$work/copy/bin/fsdp2" --version >/dev/null || fail "the tool does not run with a copy of LibTorch"
"$work/embedding" "$libtorch_lib/libtorch_cpu.so" "$work/copy/lib/libfsdp2.so.0"
rm -r "$work/copy/lib/fsdp2"
"$work/embedding" "$libtorch_lib/libtorch_cpu.so" "$work/copy/lib/libfsdp2.so.0"
if "$work/copy/bin/fsdp2" --version 2>/dev/null; then fail "LibTorch is found somewhere else"; fi
