#!/bin/bash
# The Julia package alone and on two ranks; Julia programs train, steer units and run a model of their own on two ranks.
source bindings/language_test.sh
need julia

export FSDP2_LIBRARY=$root/libfsdp2.so JULIA_DEPOT_PATH=$work/depot JULIA_PROJECT=$root/bindings/julia/FSDP2
export FSDP2_TEST_DATA=$root/tests/parity/golden OMP_NUM_THREADS=1
package=bindings/julia/FSDP2

# Compiling the tests would take longer than interpreting them.
quick=(--startup-file=no -O0 --compile=min)
julia "${quick[@]}" $package/test/runtests.jl
julia "${quick[@]}" --threads 2 $package/test/threads_test.jl
# Compiled, and with the library where the system's loader finds it: an error is an exception there, too.
env -u FSDP2_LIBRARY LD_LIBRARY_PATH="$root" julia --startup-file=no -e '
  using FSDP2
  found = try
      FSDP2.from_pretrained("none")
  catch thrown
      thrown
  end
  found isa FSDP2Error && found.code === :not_found || error(found)'
mkdir "$work/ranks"
cli/fsdp2 run --nproc-per-node 2 -- julia "${quick[@]}" $package/test/ranks_test.jl "$work/ranks"

train_on_two_ranks julia --startup-file=no examples/julia/train.jl
steer_units_on_two_ranks julia "${quick[@]}" examples/julia/units.jl

# Two threads are for the program whose ranks are threads.
command_of() { command=(julia "${quick[@]}" --threads 2 "$root/examples/julia/$1.jl"); }
programs_print_what_c_prints
