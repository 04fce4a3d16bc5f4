#!/bin/bash
# The Go package builds and answers; Go programs train and steer units on two ranks.
source bindings/language_test.sh
need go gcc

export FSDP2_LIBRARY=$root/libfsdp2.so
copy_to_work bindings/go examples/go
cd "$work/bindings/go"
export GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPATH=$work/gopath
# Go's own cache spares 25 s of compiling its standard library.
[[ -n ${HOME:-} && -w ${HOME:-} ]] || export GOCACHE=$work/cache
race=-race
go test -race -c -o "$work/probe" ./internal/capi 2>/dev/null || race= # this Go comes without its race detector
OMP_NUM_THREADS=1 go test $race -v ./...
cd "$work/examples/go"
go build -o "$work/train" ./train
go build -o "$work/steer" ./units
go build -o "$work/model" ./model
cd "$root"
train_on_two_ranks "$work/train"
steer_units_on_two_ranks "$work/steer"

# The model written in Go learns as the one written in C.
tokens=tests/parity/golden/tokens/tiny-llama.bin
examples/c/model $tokens 2 6 >"$work/losses-in-c"
cli/fsdp2 run --nproc-per-node 2 -- "$work/model" "$root/$tokens" 6 >"$work/losses-in-go"
paste -d ' ' "$work/losses-in-c" "$work/losses-in-go" | awk '
  { off = $8 - $4; if (off < 0) off = -off }
  $1 != "step" || $6 != $2 || off > 4e-5 { print "C and Go differ: " $0; wrong = 1 }
  END { exit wrong || NR != 6 }'
