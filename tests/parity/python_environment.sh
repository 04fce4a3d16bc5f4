#!/bin/bash
# Prints the python of an environment with torch and transformers, which tests compare with: torch 2.11, or the version that
# FSDP2_LIBTORCH_VERSION names.
#
#   python_environment.sh            fails if there is none yet
#   python_environment.sh --install  makes it first if need be: once per machine, about 5 GB
#
# It lies in ${FSDP2_CACHE:-~/.cache/libfsdp2}; FSDP2_PARITY_PYTHON names another python instead. pip reads the machine's own
# settings (mirrors, proxies).
set -euo pipefail

requirements=$(<"${PARITY_REQUIREMENTS:-bench/python/requirements.txt}")
version=${FSDP2_LIBTORCH_VERSION:-}
if [[ -n $version ]]; then
  [[ $version == *.*.* ]] || version+=".*"
  requirements=$(sed "s/^torch==.*/torch==$version/" <<<"$requirements")
fi
cache=${FSDP2_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libfsdp2}
environment=$cache/python-$(sha256sum <<<"$requirements" | cut -c 1-12)

if [[ -n ${FSDP2_PARITY_PYTHON:-} ]]; then
  echo "$FSDP2_PARITY_PYTHON"
  exit
fi
if [[ ! -x $environment/bin/python && ${1:-} == --install ]]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/python.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m venv "$work/new" >&2
  "$work/new/bin/python" -m pip install --quiet --disable-pip-version-check -r /dev/stdin <<<"$requirements" >&2
  # Programs as torchrun name the python that runs them by its path.
  grep -lIZ "^#!$work/new/" "$work/new/bin/"* | xargs -0 sed -i "1s|^#!$work/new/|#!$environment/|"
  mv -T "$work/new" "$environment" 2>/dev/null || [[ -x $environment/bin/python ]]
fi
if [[ ! -x $environment/bin/python ]]; then
  echo "no Python environment at $environment: tests/parity/python_environment.sh --install makes it" >&2
  exit 1
fi
echo "$environment/bin/python"
