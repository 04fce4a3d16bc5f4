"""The version of the project: MODULE.bazel and FSDP2_HEADER_VERSION say the same, which //tests/install:version_test checks."""

FSDP2_VERSION = "0.1.0"
