#!/bin/bash
# Builds libfsdp2_tokenizers.so with cargo, once for each version of its sources, and prints where it is.
#
#   build.sh      leaves it in ${FSDP2_CACHE:-~/.cache/libfsdp2}
#   build.sh DIR  copies it to DIR, too: the directory of libfsdp2.so, where that looks for it
#
# The crates that it names come from where cargo's own settings say. FSDP2_TOKENIZERS_LIBRARY names a library that is there already.
set -euo pipefail

sources=$(dirname "${BASH_SOURCE[0]}")
cache=${FSDP2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libfsdp2}
hash=$(cat "$sources"/Cargo.toml "$sources"/src/*.rs | sha256sum | cut -c 1-12)
library=${FSDP2_TOKENIZERS_LIBRARY:-$cache/tokenizers-$hash/libfsdp2_tokenizers.so}

if [[ ! -f $library ]]; then
  if ! command -v cargo >/dev/null; then
    echo "$0: cargo is needed to build libfsdp2_tokenizers.so: apt-get install cargo, or https://rustup.rs" >&2
    exit 1
  fi
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/tokenizers.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cp -RL "$sources/Cargo.toml" "$sources/src" "$work"
  CARGO_TARGET_DIR=$cache/tokenizers-target cargo build --release --manifest-path "$work/Cargo.toml" >&2
  mkdir -p "$work/new"
  cp "$cache/tokenizers-target/release/libfsdp2_tokenizers.so" "$work/new"
  mv -T "$work/new" "$(dirname "$library")" 2>/dev/null || [[ -f $library ]]
fi
if [[ -n ${1:-} ]]; then
  mkdir -p "$1"
  cp "$library" "$1"
fi
echo "$library"
