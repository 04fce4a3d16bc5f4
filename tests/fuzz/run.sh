#!/bin/bash
# Builds the libFuzzer targets and runs each over its seeds, side by side, one on each core:
#
#   tests/fuzz/run.sh [SECONDS]             all of them, 60 s each, half of it those of small texts and of ranks' files
#   tests/fuzz/run.sh SECONDS pickle zip    these
#
# Prints a line for each, `passed: fuzz pickle: ...` or `failed: ...` with the input that did it; running the target with that
# input as its argument shows the failure again. FUZZ_CORPUS names a directory that keeps what was found on the way, to go on
# from another time. Without clang and its libFuzzer: a line that begins with SKIPPED, and success.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

readonly seconds=${1:-60}
shift
targets=("$@")
readonly half=" index manifest per_rank records sharded yaml "  # what is in them has targets of its own
[[ ${#targets[@]} -gt 0 ]] || targets=(config dcp exported images pickle safetensors zip index manifest per_rank records sharded yaml)

# In memory if possible: a disk waits for files that are written over, as those of a DCP directory are for each input.
scratch=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
failures=$(mktemp -d "${TMPDIR:-/tmp}/fsdp2-fuzz-XXXXXX")
trap 'rm -rf "$scratch"; rmdir "$failures" 2>/dev/null' EXIT

probe='extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }'
if ! clang++ -x c++ -fsanitize=fuzzer,address -o "$scratch/probe" - <<<"$probe" 2>"$scratch/probe.log"; then
  echo "SKIPPED: fuzzing: needs clang with libFuzzer: third_party/install_test_tools.sh"
  exit 0
fi

labels=("${targets[@]/#/'//tests/fuzz:'}")
if ! ./bazelw build --config=fuzz --noshow_progress --ui_event_filters=-info "${labels[@]/%/_fuzz}"; then
  printf 'failed: fuzz %s: was not built\n' "${targets[@]}"
  exit 1
fi
binaries=$(./bazelw info --config=fuzz --ui_event_filters=-info bazel-bin 2>/dev/null)/tests/fuzz

# What was freed would stay in memory, up to 256 MiB, and count as the reader's.
export ASAN_OPTIONS=quarantine_size_mb=32

# run_target NAME: as many changed inputs as there is time for. 16 KiB are plenty for an attack; a reader that takes a GiB or
# 25 seconds for them is one. A busy machine may hold it up for ten.
run_target() {
  local name=$1 log=$scratch/$1.log corpus=${FUZZ_CORPUS:-$scratch/corpus}/$1 result=passed input='' time=$seconds
  [[ $half != *" $name "* ]] || time=$(((seconds + 1) / 2))
  mkdir -p "$corpus" "$scratch/tmp-$name"
  TMPDIR=$scratch/tmp-$name "$binaries/${name}_fuzz" -max_total_time="$time" -max_len=16384 -timeout=25 \
    -malloc_limit_mb=1024 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$failures/$name-" \
    "$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1 || result=failed
  if [[ $result == failed ]]; then
    tail -n 40 "$log"
    input=", input $(find "$failures" -name "$name-*" -printf '%p ')"
    touch "$scratch/failed"
  fi
  echo "$result: fuzz $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions," \
    "coverage $(grep -o ' cov: [0-9]*' "$log" | tail -n 1 | tr -dc '0-9')$input"
}

for name in "${targets[@]}"; do
  [[ $(jobs -pr | wc -l) -lt $(nproc) ]] || wait -n
  run_target "$name" &
done
wait
[[ ! -e $scratch/failed ]]
