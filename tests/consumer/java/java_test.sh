#!/bin/bash
# A Java program runs with the jar and the library that Bazel has built.
set -euo pipefail
java -cp ../libfsdp2/bindings/java/fsdp2.jar "-Djava.library.path=$(realpath ../libfsdp2)" java/Consumer.java
