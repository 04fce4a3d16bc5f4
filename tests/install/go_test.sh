#!/bin/bash
# A Go program builds by what pkg-config says of the prefix, and trains; also where the prefix has been moved to.
source tests/install/installed.sh
need go gcc pkg-config

copy_to_work bindings/go examples/go
export GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPATH=$work/gopath
[[ -n ${HOME:-} && -w ${HOME:-} ]] || export GOCACHE=$work/cache

builds_and_trains() {
  # Go's build cache does not notice that pkg-config answers otherwise; it does notice this.
  export CGO_CFLAGS=-DPREFIX=$prefix
  (cd "$work/examples/go" && go build -o "$work/train" ./train)
  train_on_two_ranks "$work/train"
}

in_two_places builds_and_trains
