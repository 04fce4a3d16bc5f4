# shellcheck shell=bash
# Sourced by the tests of an installed prefix, which begin as `TEST ARCHIVE LIBTORCH_LIB` in Bazel's runfiles tree. They use
# nothing of Bazel's but the installation itself, and find LibTorch without the environment's help.
source bindings/language_test.sh

unset LD_LIBRARY_PATH
export OMP_NUM_THREADS=1
archive=$1 libtorch_lib=$2

install_to() {  # [OPTION] PREFIX
  install/install.sh "$archive" "$libtorch_lib" "$@"
}

# Makes `prefix` what a user has set up.
use_prefix() {  # PREFIX
  prefix=$1
  launcher=$prefix/bin/fsdp2
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig CMAKE_PREFIX_PATH=$prefix
}

# Runs a check against a fresh prefix, and again after that has been moved.
in_two_places() {  # COMMAND...
  install_to "$work/here/prefix"
  use_prefix "$work/here/prefix"
  "$@"
  mkdir "$work/there"
  mv "$work/here" "$work/there/moved"
  use_prefix "$work/there/moved/prefix"
  "$@"
}

# The C example takes two more arguments than those of the other languages.
train_c_program() {  # PROGRAM
  # shellcheck disable=SC2016  # expanded by the shell that the launcher starts
  train_on_two_ranks bash -c 'exec "$0" "$1" "$2" "$TEST_TMPDIR/out" 5' "$1"
}

# The Nth block of code in a language that a README has.
code_block() {  # README LANGUAGE N
  awk -v fence="\`\`\`$2" -v wanted="$3" '
    $0 == fence { inside = ++n == wanted; next }
    $0 == "```" { inside = 0 }
    inside' "$1"
}

# Runs a program on two ranks, and fails unless its losses fall.
learns_on_two_ranks() {  # PROGRAM [ARGUMENT...]
  learns "$launcher" run --nproc-per-node 2 -- "$@"
}

# Runs a command, and fails unless the losses that it prints fall.
learns() {  # COMMAND [ARGUMENT...]
  "$@" | tee "$work/losses"
  awk '
    { gsub(/\033\[[0-9;?]*[A-Za-z]/, "") }  # a progress bar may stand before it
    $1 == "step" && $3 == "loss" { last = $4; if (!n++) first = $4 }
    END { exit !(n >= 10 && last < first - 0.1) }' "$work/losses"
}
