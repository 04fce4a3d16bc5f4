#!/bin/bash
# Tests under AddressSanitizer and UndefinedBehaviorSanitizer: part N of those below, or the one whose turn it is by the number of
# commits. All of them: .ci/sanitized.sh all. Further arguments go to Bazel. They run in the build of the fuzzers, which has
# compiled most of what they need. Without clang: a line that begins with SKIPPED, and success.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
if ! clang++ -x c++ -fsanitize=address,undefined -o "$probe" - <<<'int main() {}' 2>/dev/null; then
  echo "SKIPPED: sanitizers: needs clang with its sanitizers: third_party/install_test_tools.sh"
  exit 0
fi

readonly parts=(
  "ckpt/bytes/... ckpt/pickle/... ckpt/torch/... ckpt/value/..."
  "comm:comm_test comm/failure/... comm/meet/... comm/transport/..."
)
part=$(($(git rev-list --count HEAD 2>/dev/null || echo 0) % ${#parts[@]}))
if [[ ${1:-} =~ ^(all|[0-9]+)$ ]]; then part=$1 && shift; fi
if [[ $part == all ]]; then tests=${parts[*]}; else tests=${parts[part]}; fi
# shellcheck disable=SC2046,SC2086  # one word a pattern
./bazelw test --config=fuzz --build_tests_only --keep_going --noshow_progress "$@" $(printf '//tests/core/%s ' $tests)
