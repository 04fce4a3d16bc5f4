#!/bin/bash
# Prints the Debian mirror that this machine's own apt sources name, or FSDP2_DEBIAN_MIRROR if that is set.
set -euo pipefail

if [[ -n ${FSDP2_DEBIAN_MIRROR:-} ]]; then
  echo "$FSDP2_DEBIAN_MIRROR"
  exit
fi
command -v apt-get >/dev/null || { echo "apt-get is missing" >&2; exit 1; }
# shellcheck disable=SC2016  # apt-get fills these in
mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
  awk '$2 == "main" && $1 ~ /\/debian\/?$/ && !found { print $1; found = 1 }')
[[ -n $mirror ]] || { echo "no Debian mirror among this machine's apt sources: set FSDP2_DEBIAN_MIRROR to one" >&2; exit 1; }
echo "$mirror"
