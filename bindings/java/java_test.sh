#!/bin/bash
# The jar builds and is documented; both layers answer; Java's programs train, steer units and learn on two ranks.
source bindings/language_test.sh
need swig javac java gcc

built=$work/built tests=$work/tests
bindings/java/build.sh "$root" "$built"
jar=$built/fsdp2.jar
mkdir -p "$tests"
javac -encoding UTF-8 --release 17 -Xlint:all,-try -Werror -cp "$jar" -d "$tests" bindings/java/src/test/java/io/fsdp2/*.java \
  bindings/java/src/test/java/io/fsdp2/internal/*.java examples/java/*.java

# Everything public says what it is; what one line says, @param and @return need not say again.
copy_to_work bindings/java/src/main/java
javadoc -quiet -Xdoclint:all -Xmaxwarns 10000 -encoding UTF-8 -d "$work/javadoc" \
  --source-path "$work/bindings/java/src/main/java:$built/raw" -subpackages io.fsdp2 -exclude io.fsdp2.internal \
  >"$work/javadoc.log" 2>&1 || { cat "$work/javadoc.log"; exit 1; }
if grep -E '(warning|error):' "$work/javadoc.log" | grep -vE 'warning: no @(return|param|throws)'; then exit 1; fi

# SWIG made every function, but for what fsdp2.i leaves out.
bound() {
  grep -oE ' fsdp2_\w+\(' "$built/raw/io/fsdp2/internal/Raw.java" | tr -d ' ('
  sed -nE 's/^%ignore (\w+);.*/\1/p' bindings/java/src/main/swig/fsdp2.i
}
comm -23 <(cut -f 1 bindings/coverage.txt | grep -v '^#' | sort) <(bound | sort -u) >"$work/missing"
if [[ -s $work/missing ]]; then echo "Raw.java lacks:"; cat "$work/missing"; exit 1; fi

# libfsdp2_jni.so comes from the jar.
export FSDP2_CACHE=$work/cache OMP_NUM_THREADS=1
model=tests/parity/golden/models/tiny-llama tokens=tests/parity/golden/tokens/tiny-llama.bin
run_tests() {  # JAVA [OPTION...]
  "$@" -Xcheck:jni "-Djava.library.path=$root" "-Djava.io.tmpdir=$work" -cp "$jar:$tests" io.fsdp2.AllTests $model $tokens 2>&1 | tee "$work/said"
  if grep -E '^(WARNING|FATAL)' "$work/said"; then exit 1; fi
}
run_tests java
# Where the library is not, the error says how to name it.
for missing in "$work/none.so" "$jar"; do
  (FSDP2_LIBRARY=$missing java -cp "$jar:$tests" io.fsdp2.AllTests $model $tokens 2>&1 || true) >"$work/said"
  grep -F "(FSDP2_LIBRARY=FILE or" "$work/said"
done
# Another library is named, whether or not the linker finds libfsdp2 beside it.
other=$(realpath "$(gcc -print-file-name=libm.so.6)")
for found in "" "$root/libfsdp2.so"; do
  (FSDP2_LIBRARY=$other LD_PRELOAD=$found java -cp "$jar:$tests" io.fsdp2.AllTests $model $tokens 2>&1 || true) >"$work/said"
  grep -F "$other is another library than libfsdp2" "$work/said"
  grep -F "(FSDP2_LIBRARY=FILE or" "$work/said"
done
newer=(/usr/lib/jvm/*-25-*/bin/java)
if [[ -x ${newer[0]} ]]; then
  run_tests "${newer[0]}" --enable-native-access=ALL-UNNAMED
else
  echo "SKIPPED: no Java 25 in /usr/lib/jvm, so only with that of the path"
fi
[[ -n $(find "$FSDP2_CACHE" -name libfsdp2_jni.so) ]]

# As a module, whose other packages programs do not see.
modular=(java "-Djava.library.path=$root:$built/jni" --module-path "$jar" --add-modules io.fsdp2 -cp "$tests")
train_on_two_ranks "${modular[@]}" Train
steer_units_on_two_ranks "${modular[@]}" Units
command_of() { command=("${modular[@]}" "${1^}"); }
programs_print_what_c_prints
