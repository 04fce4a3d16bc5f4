#!/bin/bash
# Installs libfsdp2: ./bazelw run //:install -- [--copy-libtorch] PREFIX
#
# PREFIX gets what the archive (./bazelw build //:archive) holds, and PREFIX/lib/fsdp2/libtorch, where the library looks for
# LibTorch: a link to the one that it was built with, or with --copy-libtorch a copy of its libraries (450 MB), which needs
# nothing else of this machine.
set -euo pipefail

die() {
  echo "install: $*" >&2
  exit 1
}

archive=$PWD/$1 libtorch_lib=$2 # Bazel's arguments; it starts the script in its runfiles
shift 2
copy=false prefix=
for argument; do
  case $argument in
    --copy-libtorch) copy=true ;;
    -*) die "unknown option $argument" ;;
    *) [[ -z $prefix ]] || die "expected one PREFIX, found $prefix and $argument"; prefix=$argument ;;
  esac
done
[[ -n $prefix ]] || die "usage: ./bazelw run //:install -- [--copy-libtorch] PREFIX"
cd "${BUILD_WORKING_DIRECTORY:-$PWD}"
mkdir -p "$prefix"
prefix=$(realpath "$prefix")
tar --extract --gzip --file "$archive" --directory "$prefix" --strip-components=1 --no-same-owner --touch

libtorch=$prefix/lib/fsdp2/libtorch
rm -rf "$libtorch"
mkdir -p "$prefix/lib/fsdp2"
ln -s "$(dirname "$libtorch_lib")" "$libtorch"

needed=$(ldd "$prefix/lib/libfsdp2.so.0" | sed 's/^\s*//; s/ (0x[0-9a-f]*)$//')
missing=$(sed -n 's/ => not found$//p' <<<"$needed" | sort -u | paste -sd ' ')
[[ -z $missing ]] || die "installed, but $libtorch_lib lacks $missing"
if $copy; then
  mkdir -p "$libtorch.copy/lib"
  sed -n 's/^.* => //p' <<<"$needed" | grep -F "$libtorch/" | xargs -d '\n' cp --dereference --target-directory "$libtorch.copy/lib"
  rm "$libtorch"
  mv "$libtorch.copy" "$libtorch"
fi
echo "libfsdp2 is in $prefix:" >&2
echo "  export PATH=$prefix/bin:\$PATH PKG_CONFIG_PATH=$prefix/lib/pkgconfig" >&2
