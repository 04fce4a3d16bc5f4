#!/bin/bash
# Installs what some tests need and no build does: Julia, the launchers mpirun and srun, clang with libFuzzer, abidiff, and a
# Python environment with torch (5 GB). Prints a line for each that cannot be had; nothing but tests of its own miss it.
#
#   third_party/install_test_tools.sh          tries all that is missing
#   third_party/install_test_tools.sh --once   leaves out what could not be had the last time, as ./bazelw test //... does
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
source third_party/apt.sh

readonly once=${1:-}
readonly cache=${FSDP2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libfsdp2}
readonly failed=$cache/test-tools-failed  # a directory with a log for each
mkdir -p "$failed"

# TOOL, which is there if `has_TOOL` or else a command of that name is, and what installs it.
has() {
  if declare -F "has_$1" >/dev/null; then "has_$1"; else command -v "$1" >/dev/null; fi
}

has_libfuzzer() { compgen -G "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null && command -v clang; } >/dev/null
has_torch() { tests/parity/python_environment.sh; } >/dev/null 2>&1

bring() {  # TOOL COMMAND...
  local tool=$1 log=$failed/$1
  shift
  if has "$tool" || [[ $once == --once && -e $log ]]; then return; fi
  echo "installing $tool"
  if "$@" >"$log" 2>&1; then
    rm -f "$log"
  else
    echo "$tool could not be installed (tests that need it are skipped): $log says why, third_party/install_test_tools.sh tries again"
  fi
}

package() {  # PACKAGE...
  may_install || { echo "needs root: sudo apt-get install --no-install-recommends $*"; return 1; }
  [[ -n ${refreshed:-} ]] || apt_refresh
  refreshed=yes
  apt_install "$@"
}

# The environment is pip's work and the rest is apt's, so they go side by side.
bring torch tests/parity/python_environment.sh --install &
bring julia third_party/install_julia.sh
bring mpirun package openmpi-bin
bring srun package slurm-wlm
bring libfuzzer package clang libclang-rt-dev
bring abidiff package abigail-tools
wait
