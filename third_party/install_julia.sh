#!/bin/bash
# Installs Julia 1.5.3 for the tests of the Julia binding, unless some Julia is there already.
#
# Debian bookworm has no Julia. Bullseye's runs on it, together with bullseye's libunwind8: with bookworm's, any compiled
# `catch` crashes. Both come from the mirror that this machine's own apt sources name, through package lists kept apart from
# the system's, and libunwind8 is put on hold.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

readonly julia=1.5.3+dfsg-3 libunwind=1.3.2-2
works() {
  [[ $(julia --startup-file=no -e 'try error("x") catch e; println("ok") end' 2>/dev/null) == ok ]]
}

if command -v julia >/dev/null && works; then
  julia --version
  exit
fi

may_install || { echo "install_julia.sh: needs root to install packages" >&2; exit 1; }

mirror=$("$(dirname "${BASH_SOURCE[0]}")/debian_mirror.sh")
work=$(mktemp -d)
trap 'as_root rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg options=
[[ -e $keyring ]] && options="[signed-by=$keyring] "
printf "deb $options$mirror %s main\n" bookworm bullseye >"$work/sources.list"
cat >"$work/preferences" <<'PINS'
Package: *
Pin: release n=bullseye
Pin-Priority: 100

Package: libunwind8
Pin: release n=bullseye
Pin-Priority: 1001
PINS

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq \
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences="$work/preferences" \
    -o Dir::Etc::preferencesparts=/dev/null -o Dir::State::lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
    -o Acquire::Languages=none -o APT::Sandbox::User=root -o DPkg::Lock::Timeout=120 "$@"
}
apt update
apt install --yes --no-install-recommends --allow-downgrades "julia=$julia" "libjulia1=$julia" "libunwind8=$libunwind"
as_root apt-mark hold libunwind8 >/dev/null
works || { echo "install_julia.sh: the installed Julia does not work" >&2; exit 1; }
julia --version
