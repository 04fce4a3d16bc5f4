# shellcheck shell=bash
# Sourced by what installs Debian packages: as root, or by a password-free sudo.

may_install() {
  command -v apt-get >/dev/null && { [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null; }
}

as_root() {  # COMMAND...
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

apt_refresh() {
  as_root apt-get -qq update >&2 || true  # without a network, what is cached may do
}

apt_install() {  # PACKAGE...
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends "$@" >/dev/null
}
