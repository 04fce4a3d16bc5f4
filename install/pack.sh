#!/bin/bash
# pack.sh MANIFEST ROOT ARCHIVE: a tar.gz of a folder ROOT. Each line of MANIFEST is `file FROM TO`, `kept FROM TO`, for a file of the
# repository, which may be a script, or `link TARGET TO`. The same files make the same bytes.
set -euo pipefail

manifest=$1 root=$2 archive=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

while read -r kind from to; do
  to=$work/$root/$to
  mkdir -p "$(dirname "$to")"
  case $kind in
    file) install -m 644 "$from" "$to" ;;
    kept) install -m "$([[ -x $from ]] && echo 755 || echo 644)" "$from" "$to" ;;
    link) ln -s "$from" "$to" ;;
  esac
done <"$manifest"
chmod 755 "$work/$root/bin"/* "$work/$root/lib"/*.so.*
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=u=rwX,go=rX "$root" | gzip -9n >"$archive"
