#!/bin/bash
# The generated files and copies that are in the repository: because cargo, go and Pkg build from there alone, and the API
# reference (docs/api) because it is read there:
#
#   generated.sh update              writes them (./bazelw run //bindings:update)
#   generated.sh check_ours          fails if one differs from what our generator makes of the headers (//bindings:generated_test)
#   generated.sh check_bindgens      the same for bindgen and Rust (//bindings:bindgen_test)
set -euo pipefail

mode=$1
generate=$(realpath bindings/generate/generate)
status=0
if [[ $mode == update ]]; then cd "$BUILD_WORKSPACE_DIRECTORY"; fi
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT

file() {  # PATH COMMAND...: its output is the file
  "${@:2}" >"$fresh"
  if [[ $mode == update ]]; then
    cmp -s "$fresh" "$1" || cp "$fresh" "$1"
  elif [[ ! -e $1 ]]; then
    echo "$1 is missing" && status=1
  elif ! diff -u --label "$1" --label "from the headers" "$1" "$fresh"; then
    status=1
  fi
}

# shellcheck disable=SC2329  # called by file()
coverage() { "$generate" coverage include <bindings/coverage.txt; }

# The headers, because a Go module has to carry what its C code includes.
go_headers() {
  local header
  for header in include/fsdp2/*.h; do file "bindings/go/internal/capi/fsdp2/${header##*/}" cat "$header"; done
}

# The licence, because packages leave the repository without the rest of it.
licences() {
  local package
  for package in go julia/FSDP2 rust/fsdp2 rust/fsdp2-sys; do file "bindings/$package/LICENSE" cat LICENSE; done
}

# The API reference: a page of each header. A page whose header is gone fails the check, and goes.
docs() {
  local header page
  local -A pages=([docs/api/README.md]=1)
  for header in include/fsdp2/*.h; do
    page=${header##*/}
    [[ $page == fsdp2.h ]] || pages[docs/api/${page%.h}.md]=1
  done
  for page in "${!pages[@]}"; do file "$page" page "${page##*/}"; done
  for page in docs/api/*.md; do
    [[ ${pages[$page]:-} ]] && continue
    if [[ $mode == update ]]; then rm "$page"; else echo "$page is the page of no header" && status=1; fi
  done
}

# shellcheck disable=SC2329  # called by file()
page() { "$generate" docs include "$1" <bindings/coverage.txt; }

ours() {
  go_headers
  licences
  file bindings/go/internal/capi/calls.h "$generate" go_calls include
  file bindings/go/internal/capi/capi.go "$generate" go include
  file bindings/go/internal/capi/layout.go "$generate" go_layout include
  file bindings/julia/FSDP2/src/libfsdp2.jl "$generate" julia include
  file bindings/coverage.txt coverage
  docs
}

bindgens() {
  local tool
  for tool in bindgen rustfmt; do
    if ! command -v $tool >/dev/null; then
      echo "SKIPPED: no $tool on this machine, so the Rust bindings may not be what the headers give: apt-get install $tool"
      return
    fi
  done
  if [[ $(bindgen /dev/null 2>&1) == *"find libclang"* ]]; then
    echo "SKIPPED: bindgen finds no libclang, so the Rust bindings may not be what the headers give: apt-get install libclang-dev"
    return
  fi
  file bindings/rust/fsdp2-sys/src/bindings.rs bindings/rust/fsdp2-sys/bindgen.sh include
}

case $mode in
  update) ours && bindgens ;;
  check_ours) ours ;;
  check_bindgens) bindgens ;;
esac
[[ $status -eq 0 ]] || echo "The headers or the licence have changed. Run ./bazelw run //bindings:update and read what it changed."
exit $status
