#!/bin/bash
# The Julia package loads and answers; Julia programs train and steer units on two ranks.
source bindings/language_test.sh
need julia

export FSDP2_LIBRARY=$root/libfsdp2.so JULIA_DEPOT_PATH=$work/depot JULIA_PROJECT=$root/bindings/julia/FSDP2
julia --startup-file=no bindings/julia/FSDP2/test/runtests.jl
train_on_two_ranks julia --startup-file=no examples/julia/train.jl
steer_units_on_two_ranks julia --startup-file=no examples/julia/units.jl
