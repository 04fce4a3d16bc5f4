#!/bin/bash
# The version is the same wherever it is written.
set -eu
version=$(sed -nE 's/^FSDP2_VERSION = "(.*)"$/\1/p' bazel/version.bzl)
module=$(sed -nE '/^module\(/,/^\)/s/^ *version = "(.*)",$/\1/p' MODULE.bazel)
header=$(sed -nE 's/^#define FSDP2_HEADER_VERSION 0x([0-9a-f]{4})([0-9a-f]{4})u$/\1 \2/p' include/fsdp2/base.h)
read -r major minor <<<"$header"
[[ $module == "$version" ]] || { echo "MODULE.bazel says $module, bazel/version.bzl $version" >&2; exit 1; }
[[ $version == "$((16#$major)).$((16#$minor))."* ]] || { echo "base.h says $header, bazel/version.bzl $version" >&2; exit 1; }

packages=(bindings/rust/fsdp2/Cargo.toml bindings/rust/fsdp2-sys/Cargo.toml bindings/julia/FSDP2/Project.toml bindings/java/pom.xml)
for package in "${packages[@]}"; do
  found=$(sed -nE 's/^(version = "| *<version>)([^"<]*)("|<\/version>)$/\2/p' "$package" | head -n 1)
  [[ $found == "$version" ]] || { echo "$package says $found, bazel/version.bzl $version" >&2; exit 1; }
done
