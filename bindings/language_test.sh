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
  hold_to_golden fp32 5
}

# Holds the losses in $work/losses against the first ones of a recorded run of tiny-llama on two ranks.
hold_to_golden() {  # RUN STEPS
  grep "\"name\": \"$1\", \"world_size\": 2," tests/parity/golden/tiny-llama.json | sed 's/.*"loss": \[\([^]]*\)\].*/\1/' |
    awk -v RS='[,\n] *' '{ print "step", NR - 1, "loss", $1 }' | head -n "$2" >"$work/golden"
  paste "$work/golden" "$work/losses" | awk -v steps="$2" '
    {
      off = ($8 - $4) / $4
      if (!($5 == "step" && $6 == $2 && $7 == "loss" && off > -5e-6 && off < 5e-6)) {
        print "expected " $1, $2, $3, $4 ", got " $5, $6, $7, $8
        wrong = 1
      }
    }
    END { exit wrong || NR != steps }'
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

# Runs a program of examples/c and the same one in the test's language, each in a folder of its own: they print the same lines. The
# test's function `command_of PROGRAM` sets `command`.
as_in_c() {  # RANKS PROGRAM [ARGUMENT...]
  local ranks=$1 program=$2 launch=("$root/$launcher" run --nproc-per-node "$1" --) command
  shift 2
  command_of "$program"
  mkdir -p "$work/in_c" "$work/here"
  (cd "$work/in_c" && LD_LIBRARY_PATH=$root "${launch[@]}" "$root/examples/c/$program" "$@" >"$program.lines")
  (cd "$work/here" && "${launch[@]}" "${command[@]}" "$@" >"$program.lines")
  echo "$program, $ranks ranks:"
  awk -f tests/capi/examples/same_lines.awk "$work/in_c/$program.lines" "$work/here/$program.lines"
}

# The programs that all languages have, but for `train` and `units`.
programs_print_what_c_prints() {
  local golden=$root/tests/parity/golden model tokens
  model=$golden/models/tiny-llama tokens=$golden/tokens/tiny-llama.bin
  as_in_c 2 resume "$model" "$tokens" run 2
  as_in_c 4 resume "$model" "$tokens" run 3
  as_in_c 3 resume "$model" "$tokens" run 4
  as_in_c 2 layers "$tokens" 6
  as_in_c 2 model "$tokens" 6
  as_in_c 4 model "$tokens" 6 2
  as_in_c 2 generate "$model"
  as_in_c 2 data "$model" 5
  as_in_c 2 exported "$root/tests/parity/exported/llama.pt2" 5
  as_in_c 1 threads "$model" "$tokens" 2 3
}
