#!/bin/bash
# The program of Go's README builds without the library, and learns with that of the prefix; also where it has been moved to. The README's
# other lines of Go compile.
source tests/install/installed.sh
need go gcc

copy_to_work bindings/go
export GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPATH=$work/gopath
[[ -n ${HOME:-} && -w ${HOME:-} ]] || export GOCACHE=$work/cache

mkdir -p "$work/first/more"
code_block bindings/go/README.md go 1 >"$work/first/main.go"
{
  cat <<'END'
package more

import (
	"errors"

	"fsdp2"
)

func more(model *fsdp2.Module, shard *fsdp2.Shard, optimizer *fsdp2.Optimizer, step *fsdp2.Step, loader *fsdp2.Loader,
	job fsdp2.MeshInfo, x, weight, tokens, labels *fsdp2.Tensor, prompts [][]int64, yaml []byte) {
END
  code_block bindings/go/README.md go 2 | tee "$work/lines"
  # Go refuses variables that nothing reads.
  sed -nE 's/^([a-zA-Z, ]+) := .*/\1/p' "$work/lines" | tr -d ' ' | tr ',' '\n' | sed 's/^/_ = /'
  echo "}"
} >"$work/first/more/more.go"
(
  cd "$work/first"
  go mod init first
  go mod edit -require=fsdp2@v0.0.0 -replace=fsdp2="$work/bindings/go"
  go build -o first .
  go build ./more
)

learns_with_prefix() {
  FSDP2_LIBRARY=$prefix/lib/libfsdp2.so learns_on_two_ranks "$work/first/first" examples/configs/byte-llama.json examples/data/opticks.txt
}

in_two_places learns_with_prefix
