# shellcheck shell=bash
# Sourced by the tests of all languages, which run in Bazel's runfiles tree.
#
# A test ends here, passed, when its language is not on the machine. The line begins with SKIPPED: ./bazelw prints such lines
# of the tests' logs at the end.

set -euo pipefail

root=$PWD
work=$TEST_TMPDIR
launcher=cli/fsdp2

need() {  # COMMAND...
  local command remedy
  for command; do
    if ! command -v "$command" >/dev/null; then
      case $command in
        go) remedy="apt-get install golang-go" ;;
        java | javac) remedy="apt-get install openjdk-17-jdk-headless" ;;
        julia) remedy="third_party/install_julia.sh installs it" ;;
        *) remedy="apt-get install $command" ;;
      esac
      echo "SKIPPED: no $command on this machine: $remedy"
      exit 0
    fi
  done
}

# Copies folders out of the runfiles, so that a tool that writes beside its sources can.
copy_to_work() {  # FOLDER...
  local folder
  for folder; do
    mkdir -p "$work/$(dirname "$folder")"
    cp -RL "$folder" "$work/$folder"
  done
}

# What an installed libfsdp2 tells pkg-config.
describe_to_pkg_config() {
  mkdir -p "$work/pkgconfig"
  cat >"$work/pkgconfig/fsdp2.pc" <<PC
Name: fsdp2
Description: libfsdp2 in Bazel's output tree
Version: 0.1
Cflags: -I$root/include
Libs: -L$root -Wl,-rpath,$root -lfsdp2
PC
  export PKG_CONFIG_PATH=$work/pkgconfig
}

# Runs a training program on two ranks and holds its losses against those recorded from PyTorch.
train_on_two_ranks() {  # PROGRAM [ARGUMENT...]; the model directory and the token file are appended
  local golden=tests/parity/golden
  "$launcher" run --nproc-per-node 2 -- "$@" "$root/$golden/models/tiny-llama" "$root/$golden/tokens/tiny-llama.bin" |
    tee "$work/losses"
  grep '"name": "fp32", "world_size": 2,' $golden/tiny-llama.json | sed 's/.*"loss": \[\([^]]*\)\].*/\1/' |
    awk -v RS='[,\n] *' '{ print "step", NR - 1, "loss", $1 }' | head -5 >"$work/golden"
  paste "$work/golden" "$work/losses" | awk '
    {
      off = ($8 - $4) / $4
      if (!($5 == "step" && $6 == $2 && $7 == "loss" && off > -5e-6 && off < 5e-6)) {
        print "expected " $1, $2, $3, $4 ", got " $5, $6, $7, $8
        wrong = 1
      }
    }
    END { exit wrong || NR != 5 }'
}

# Runs a program that steers a unit by hand, on two ranks. A layer of tiny-llama is 4 x 64 x 64 + 3 x 64 x 176 + 2 x 64 floats.
steer_units_on_two_ranks() {  # PROGRAM [ARGUMENT...]; the model directory and the token file are appended
  local golden=tests/parity/golden
  "$launcher" run --nproc-per-node 2 -- "$@" "$root/$golden/models/tiny-llama" "$root/$golden/tokens/tiny-llama.bin" >"$work/units"
  diff "$work/units" - <<LINES
unsharded bytes: 201216, then 0
events: all-gather, unshard, reshard
model.embed_tokens.weight: 384 x 64, here 192 x 64, sharded on dim 0 over 2 ranks
gradients ready: 21 of 21 parameters
LINES
}
