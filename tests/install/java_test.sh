#!/bin/bash
# The program of Java's README learns with the library of the prefix, by javac and as a Maven project; also where the prefix has been
# moved to.
source tests/install/installed.sh
need swig java javac gcc

install_to "$work/first"
bindings/java/build.sh "$root" "$work/built" "$work/first/lib"
jar=$work/built/fsdp2.jar
export FSDP2_CACHE=$work/cache
mkdir -p "$work/learn/src/main/java"
code_block bindings/java/README.md java 1 >"$work/learn/src/main/java/Learn.java"
code_block bindings/java/README.md xml 1 >"$work/learn/pom.xml"
javac -cp "$jar" -d "$work/classes" "$work/learn/src/main/java/Learn.java"

learns_with() {  # CLASS_PATH
  FSDP2_LIBRARY=$prefix/lib/libfsdp2.so learns_on_two_ranks java -cp "$1" Learn examples/configs/byte-llama.json examples/data/opticks.txt
}

in_two_places learns_with "$jar:$work/classes"

# Maven's plug-ins come over the network, to a repository of the test's own.
maven() { mvn --batch-mode --quiet "-Dmaven.repo.local=$work/maven" "$@" 2>&1 | tee "$work/maven.log"; }
command -v mvn >/dev/null || { echo "SKIPPED: no mvn on this machine, so not as a Maven project: apt-get install maven"; exit 0; }
if ! maven install:install-file "-Dfile=$jar" "-DpomFile=$root/bindings/java/pom.xml"; then
  grep -qE "Could not transfer|could not be resolved|Unknown host" "$work/maven.log" || exit 1
  echo "SKIPPED: Maven does not reach its plug-ins, so not as a Maven project"
  exit 0
fi
(cd "$work/learn" && maven package dependency:build-classpath -Dmdep.outputFile=classpath)
use_prefix "$work/there/moved/prefix"
learns_with "$work/learn/target/learn-1.jar:$(cat "$work/learn/classpath")"
