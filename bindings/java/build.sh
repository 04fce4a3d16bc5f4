#!/bin/bash
# build.sh ROOT OUT [LIBRARY_DIRECTORY] [GENERATOR]
#
# Makes Java's binding from a checkout at ROOT: OUT/classes, with io.fsdp2 and the raw layer that SWIG writes, OUT/jni with
# libfsdp2_jni.so, and OUT/fsdp2.jar, which has both. LIBRARY_DIRECTORY has libfsdp2.so (ROOT). JAVA_HOME chooses the JDK.
set -euo pipefail

root=$(realpath "$1") out=$(realpath -m "$2")
libraries=$(realpath "${3:-$root}") generator=$(realpath -s "${4:-$root/bindings/generate/generate}")
jdk=${JAVA_HOME:-$(dirname "$(dirname "$(realpath "$(command -v javac)")")")}
source=$root/bindings/java/src/main
raw=$out/raw classes=$out/classes jni=$out/jni
rm -rf "$raw" "$classes" "$jni"
mkdir -p "$raw/io/fsdp2/internal" "$classes" "$jni"

"$generator" swig "$root/include" >"$raw/headers.i"
swig -java -Wall -Werror -package io.fsdp2.internal "-I$root/include" "-I$raw" "-I$source/swig" \
  -outdir "$raw/io/fsdp2/internal" -o "$raw/raw.c" "$source/swig/fsdp2.i"

# A module may be named with a digit (-module), and a scope need not be named again (-try).
# Beside this library, or where the loader has been told to find it.
gcc -O2 -shared -fPIC -fno-strict-aliasing -Wall -Wextra -Werror "-I$root/include" "-I$jdk/include" "-I$jdk/include/linux" \
  "$raw/raw.c" -o "$jni/libfsdp2_jni.so" "-L$libraries" '-Wl,-rpath,$ORIGIN' -lfsdp2

"$jdk/bin/javac" -encoding UTF-8 --release 17 -Xlint:all,-module,-try -Werror -d "$classes" \
  "$raw"/io/fsdp2/internal/*.java "$source"/java/module-info.java "$source"/java/io/fsdp2/*.java "$source"/java/io/fsdp2/internal/*.java

packed=$out/packed/io/fsdp2/internal/native/linux-$(uname -m)
rm -rf "$out/packed"
mkdir -p "$packed" "$out/packed/META-INF/maven/io.fsdp2/fsdp2"
cp "$jni/libfsdp2_jni.so" "$packed"
cp "$root/bindings/java/pom.xml" "$out/packed/META-INF/maven/io.fsdp2/fsdp2"
cp "$root/LICENSE" "$out/packed/META-INF"
"$jdk/bin/jar" --create --file "$out/fsdp2.jar" --date 1980-01-01T00:00:02Z -C "$classes" . -C "$out/packed" .
