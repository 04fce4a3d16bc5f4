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
# Each time anew: what Go remembers of a test does not depend on the library.
OMP_NUM_THREADS=1 go test $race -count=1 -v ./...
cd "$work/examples/go"
go build -o "$work/programs/" ./...
cd "$root"
train_on_two_ranks "$work/programs/train"
steer_units_on_two_ranks "$work/programs/units"
command_of() { command=("$work/programs/$1"); }
programs_print_what_c_prints
