#!/bin/bash
# SWIG's raw layer compiles and answers; units, hooks and extensions work; a Java program trains on two ranks.
source bindings/language_test.sh
need swig javac java gcc

cd bindings/java
raw=$work/raw classes=$work/classes
mkdir -p "$raw" "$classes"
"$root/bindings/generate/generate" swig "$root/include" >"$raw/headers.i"
swig -java -Wall -Werror -package io.fsdp2.internal "-I$root/include" "-I$raw" -outdir "$raw" -o "$raw/raw.c" src/main/swig/fsdp2.i

jdk=$(dirname "$(dirname "$(realpath "$(command -v javac)")")")
gcc -O2 -shared -fPIC -fno-strict-aliasing -Wall -Wextra -Werror "-I$root/include" "-I$jdk/include" "-I$jdk/include/linux" \
  "$raw/raw.c" -o "$classes/libfsdp2_jni.so" "-L$root" "-Wl,-rpath,$root" -lfsdp2
javac -encoding UTF-8 --release 17 -Xlint:all -Werror -d "$classes" "$raw"/*.java src/main/java/io/fsdp2/*.java \
  src/main/java/io/fsdp2/internal/*.java src/test/java/io/fsdp2/internal/*.java "$root"/examples/java/*.java
cd "$root"

# Every function that coverage.txt calls bound is there.
awk '!/^#/ && $4 == "raw" { print $1 }' bindings/coverage.txt | while read -r function; do
  grep -q " $function(" "$raw/Raw.java" || { echo "Raw.java has no $function"; exit 1; }
done
java=(java "-Djava.library.path=$classes" -cp "$classes")
"${java[@]}" -Xcheck:jni io.fsdp2.internal.RawTest
"${java[@]}" -Xcheck:jni io.fsdp2.internal.ModelTest
"${java[@]}" -Xcheck:jni io.fsdp2.internal.ShardTest tests/parity/golden/models/tiny-llama tests/parity/golden/tokens/tiny-llama.bin
train_on_two_ranks "${java[@]}" Train
