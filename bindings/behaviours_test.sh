#!/bin/bash
# Every language has a test of each behaviour in behaviours.txt.
set -euo pipefail

sources() {  # LANGUAGE; its tests in one file
  case $1 in
    rust) find -L bindings/rust/fsdp2/tests -name '*.rs' ;;
    go) find -L bindings/go -maxdepth 1 -name '*_test.go' ;;
    java) find -L bindings/java/src/test -name '*.java' ;;
    julia) find -L bindings/julia/FSDP2/test -name '*.jl' ;;
  esac | xargs cat >"$TEST_TMPDIR/$1"
}

failed=0
want() {  # LANGUAGE TEXT
  grep -qF -- "$2" "$TEST_TMPDIR/$1" || { echo "$1 has no test '$2'"; failed=1; }
}

for language in rust go java julia; do sources $language; done
while read -r behaviour; do
  words=$(tr -d "'," <<<"$behaviour" | tr - ' ')
  snake=${words// /_}
  want rust "fn ${snake,,}()"
  want go "func Test$(sed -E 's/(^| )(.)/\u\2/g' <<<"$words")("
  want java "\"$behaviour\","
  want julia "@testset \"$behaviour"
done < <(grep -v '^#' bindings/behaviours.txt)
exit $failed
