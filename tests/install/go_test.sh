#!/bin/bash
# The program of Go's README builds without the library, and learns with that of the prefix; also where it has been moved to.
source tests/install/installed.sh
need go gcc

copy_to_work bindings/go
export GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPATH=$work/gopath
[[ -n ${HOME:-} && -w ${HOME:-} ]] || export GOCACHE=$work/cache

mkdir "$work/first"
code_block bindings/go/README.md go 1 >"$work/first/main.go"
(
  cd "$work/first"
  go mod init first
  go mod edit -require=fsdp2@v0.0.0 -replace=fsdp2="$work/bindings/go"
  go build -o first .
)

learns_with_prefix() {
  FSDP2_LIBRARY=$prefix/lib/libfsdp2.so learns_on_two_ranks "$work/first/first" examples/configs/byte-llama.json examples/data/opticks.txt
}

in_two_places learns_with_prefix
