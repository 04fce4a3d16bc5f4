#!/bin/bash
# Both crates build with cargo alone, the raw one's layouts are C's, and the safe one keeps its promises; Rust programs train a
# model from disk and models of their own, and steer units.
source bindings/language_test.sh
need cargo

copy_to_work bindings/rust/fsdp2-sys bindings/rust/fsdp2 examples/rust
export FSDP2_LIB_DIR=$root CARGO_TARGET_DIR=$work/target CARGO_NET_OFFLINE=true OMP_NUM_THREADS=1
export FSDP2_TEST_DATA=$root/tests/parity/golden
# Nobody looks into these programs, nor compiles them again: half the time goes into what that would need.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
(cd "$work/bindings/rust/fsdp2-sys" && cargo test)
cd "$work/bindings/rust/fsdp2"
cargo test
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
# Without the library when it is built, and with it when it runs.
env -u FSDP2_LIB_DIR FSDP2_LIBRARY="$root/libfsdp2.so" cargo test --features load-dynamic --test dynamic --test function
cd "$root"
train_on_two_ranks "$work/target/debug/examples/train"
steer_units_on_two_ranks "$work/target/debug/examples/units"

command_of() { command=("$work/target/debug/examples/$1"); }
programs_print_what_c_prints

# The sidecar trains for a client, and hands out and takes in a parameter: without its last norm the model knows nothing.
serve() {  # PROGRAM
  cli/fsdp2 run --nproc-per-node 2 -- "$1" "$root/tests/parity/golden/models/tiny-llama" 127.0.0.1:0 >"$work/address"
}
ask() {  # REQUEST...; sets answer
  echo "$*" >&3
  IFS= read -r answer <&3
  [[ $answer == ok* ]] || { echo "$*: $answer"; exit 1; }
}
loss() {
  ask forward 2 1 2 3 4 5 6 7 8
  echo "${answer#ok }"
}
lower() { awk -v less="$1" -v more="$2" 'BEGIN { exit !(less < more) }'; }

serve "$work/target/debug/examples/sidecar" &
until port=$(sed -n 's/.*listening on 127.0.0.1://p' "$work/address") && [[ $port ]]; do
  kill -0 $!
  sleep 0.1
done
exec 3<>"/dev/tcp/127.0.0.1/$port"
before=$(loss)
ask backward
ask step 0.01 1.0
after=$(loss)
lower "$after" "$before"
ask get model.norm.weight
head -c "${answer#ok }" <&3 >"$work/norm"
cat <(echo "set model.norm.weight ${answer#ok }") <(head -c "${answer#ok }" /dev/zero) >&3
read -r answer <&3
lower "$after" "$(loss)"
cat <(echo "set model.norm.weight $(wc -c <"$work/norm")") "$work/norm" >&3
read -r answer <&3
[[ $(loss) == "$after" ]]
ask quit
wait $!
