#!/bin/bash
# The Go package builds and answers; Go programs train and steer units on two ranks.
source bindings/language_test.sh
need go gcc pkg-config

describe_to_pkg_config
copy_to_work bindings/go examples/go
cd "$work/bindings/go"
export GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPATH=$work/gopath
# Go's own cache spares 25 s of compiling its standard library.
[[ -n ${HOME:-} && -w ${HOME:-} ]] || export GOCACHE=$work/cache
GODEBUG=cgocheck=1 go test -v ./...
cd "$work/examples/go"
go build -o "$work/train" ./train
go build -o "$work/steer" ./units
cd "$root"
train_on_two_ranks "$work/train"
steer_units_on_two_ranks "$work/steer"
