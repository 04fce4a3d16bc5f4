"""Tests of the C ABI in C: programs against libfsdp2.so, as users have it."""

load("@rules_cc//cc:defs.bzl", "cc_test")
load("//bazel:copts.bzl", "FSDP2_CONLYOPTS", "LIBTORCH_VERSION_DEFINE")

def c_tests(name, tests, counts_memory = [], slow = []):
    """A cc_test for the source of each name.

    Args:
      name: of the file group of their programs, for machines without Bazel.
      tests: their names.
      counts_memory: those that do, which no sanitizer takes.
      slow: those that wait for time-outs, and may take more than a minute.
    """
    for test in tests:
        cc_test(
            name = test,
            size = "medium" if test in slow else "small",
            srcs = [test + ".c"],
            copts = FSDP2_CONLYOPTS,
            # Clients of LibTorch's store ask for the name of its address: not for longer than a time-out here.
            env = {"RES_OPTIONS": "timeout:1 attempts:1"},
            linkopts = [
                "-lm",
                "-lpthread",
            ],
            local_defines = [LIBTORCH_VERSION_DEFINE],
            tags = ["counts-memory"] if test in counts_memory else [],
            deps = ["//tests/capi:harness"],
        )
    native.filegroup(
        name = name,
        testonly = True,
        srcs = tests,
        visibility = ["//tests/capi:__pkg__"],
    )
