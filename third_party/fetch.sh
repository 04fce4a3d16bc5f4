#!/bin/bash
# Fetches one pinned file with its registry's own client and prints where it lies.
#
#   fetch.sh wheel  SHA256 NAME==VERSION       a Python wheel (pip)
#   fetch.sh deb    SHA256 PACKAGE=VERSION     a Debian package (apt-get)
#   fetch.sh source SHA256 SOURCE_PACKAGE      a tarball of a Debian source package (apt-get)
#
# Files are kept in ${FSDP2_CACHE:-~/.cache/libfsdp2}/files/SHA256/, so that each is downloaded once per machine. The clients
# read the machine's own settings (mirrors, proxies, certificates); no host is named here. apt-get runs on a state directory
# of its own: it needs no root and leaves the system's package lists alone.
set -euo pipefail

readonly suite=bookworm  # the Debian release whose packages are pinned in repositories.bzl
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FSDP2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libfsdp2}

die() {
  echo "fetch.sh: $*" >&2
  exit 1
}

# Runs apt-get on a private state directory that knows only the pinned suite.
private_apt() {
  local root=$cache/apt
  apt-get -qq \
    -o Dir::State="$root/state" -o Dir::Cache="$root/cache" -o APT::Sandbox::User= -o Acquire::Languages=none \
    -o Dir::Etc::sourcelist="$root/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null "$@" >&2
}

refresh_apt() {
  local root=$cache/apt mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg options=
  mirror=$("$here/debian_mirror.sh") || die "point the FSDP2_* variable of this dependency at a local copy"
  mkdir -p "$root/state/lists/partial" "$root/cache/archives/partial"
  [[ -e $keyring ]] && options="[signed-by=$keyring] "
  printf '%s\n' "deb $options$mirror $suite main" "deb-src $options$mirror $suite main" >"$root/sources.list"
  private_apt update
}

fetch_wheel() {
  local pip=(python3 -m pip)
  "${pip[@]}" --version >/dev/null 2>&1 || pip=(pip3)
  "${pip[@]}" download --quiet --no-deps --dest . --only-binary=:all: --implementation cp --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_18_x86_64 --platform manylinux2014_x86_64 "$1" >&2
}

fetch_from_apt() {  # ARGUMENTS of apt-get; lists are refreshed once when they are missing or out of date
  if [[ -e $cache/apt/sources.list ]] && private_apt "$@" 2>/dev/null; then
    return
  fi
  refresh_apt
  private_apt "$@"
}

[[ $# -eq 3 ]] || die "usage: fetch.sh wheel|deb|source SHA256 NAME"
kind=$1 sha256=$2 name=$3
directory=$cache/files/$sha256

if [[ ! -d $directory ]]; then
  mkdir -p "$cache/files"
  exec 9>"$cache/lock"
  flock 9
fi
if [[ ! -d $directory ]]; then
  work=$(mktemp -d "$cache/files/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  case $kind in
    wheel) fetch_wheel "$name" ;;
    deb) fetch_from_apt download "$name" ;;
    source) fetch_from_apt source --download-only "$name" ;;
    *) die "unknown kind of file: $kind" ;;
  esac
  wanted=$(sha256sum -- * | awk -v sum="$sha256" '$1 == sum { print $2 }')
  [[ -n $wanted ]] || die "$name: expected sha256 $sha256, got $(sha256sum -- * | tr '\n' ' ')"
  mkdir keep
  mv "$wanted" keep/
  mv keep "$directory"
fi
echo "$directory"/*
