#!/bin/bash
# A Julia program trains with the library of the prefix; also where the prefix has been moved to.
source tests/install/installed.sh
need julia

export JULIA_DEPOT_PATH=$work/depot JULIA_PROJECT=$root/bindings/julia/FSDP2

trains() {
  FSDP2_LIBRARY=$prefix/lib/libfsdp2.so train_on_two_ranks julia --startup-file=no examples/julia/train.jl
}

in_two_places trains
