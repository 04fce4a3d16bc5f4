"""C++ targets of this repository: one a room, compiled as one unit.

LibTorch's headers are most of what a compilation costs. So the sources of a target are joined into generated units, in which
every header is read once; the files themselves stay small. `--config=files` compiles each by itself, for those who edit one,
and to see that each includes what it needs.
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")
load(":copts.bzl", "FSDP2_COPTS")

def _join(name, srcs):
    """A source that is `srcs` one after the other; messages name the file and line of each."""
    native.genrule(
        name = name,
        srcs = srcs,
        outs = [name + ".cc"],
        cmd = "for file in $(SRCS); do printf '#line 1 \"%s\"\\n' $$file; cat $$file; done > $@",
        visibility = ["//visibility:private"],
    )

def _sources(name, srcs, units):
    """What to compile for `srcs`: headers as they are, sources joined into `units` of about as many files each.

    Sources of one unit must not give one name to different things, not even in unnamed namespaces.
    """
    headers = [src for src in srcs if src.endswith(".h")]
    sources = [src for src in srcs if not src.endswith(".h")]
    if len(sources) <= 1:
        return srcs
    joined = []
    size = (len(sources) + units - 1) // units
    for first in range(0, len(sources), size):
        unit = "%s_unit%d" % (name, len(joined))
        _join(unit, sources[first:first + size])
        joined.append(":" + unit)
    return headers + select({
        "//bazel:file_by_file": sources,
        "//conditions:default": joined,
    })

def _begin_with_prefix(prefix):
    """Options and dependencies of units that begin with the compiled prefix; single files stand for themselves."""
    if not prefix:
        return [], []

    # gcc looks for the compiled header where it finds the header, clang only where the option says.
    root = Label("//bazel/prefix").workspace_root
    directory = "/".join([part for part in ["$(BINDIR)", root, "bazel/prefix"] if part])
    return (
        select({
            "//bazel:clang_file_by_file": [],
            "//bazel:clang": ["-include", directory + "/fsdp2_prefix.h"],
            "//bazel:file_by_file": [],
            "//conditions:default": ["-include", "fsdp2_prefix.h", "-Winvalid-pch", "-Wno-error=invalid-pch"],
        }),
        select({"//bazel:file_by_file": [], "//conditions:default": ["//bazel/prefix"]}),
    )

def _show_files(name, srcs, hdrs):
    """For the test that checks who includes whom."""
    native.filegroup(
        name = name + "_files",
        srcs = srcs + hdrs,
        visibility = ["//tests/house:__pkg__"],
    )

def fsdp2_cc_library(name, srcs = [], hdrs = [], units = 1, prefix = True, copts = [], deps = [], **kwargs):
    """A cc_library of ours.

    Args:
      name: of the library.
      srcs: sources and private headers.
      hdrs: headers for others.
      units: how many units the sources are joined into; more than one where a single one would keep one core busy for long.
      prefix: whether the units begin with the compiled prefix, which has LibTorch's headers.
      copts: further compiler options.
      deps: the rooms and libraries it uses.
      **kwargs: handed on to cc_library.
    """
    _show_files(name, srcs, hdrs)
    prefix_copts, prefix_deps = _begin_with_prefix(prefix)
    cc_library(
        name = name,
        srcs = _sources(name, srcs, units),
        hdrs = hdrs,
        copts = FSDP2_COPTS + prefix_copts + copts,
        deps = deps + prefix_deps,
        **kwargs
    )

def fsdp2_cc_binary(name, srcs = [], units = 1, prefix = True, copts = [], deps = [], **kwargs):
    """A cc_binary of ours; see fsdp2_cc_library."""
    _show_files(name, srcs, [])
    prefix_copts, prefix_deps = _begin_with_prefix(prefix)
    cc_binary(
        name = name,
        srcs = _sources(name, srcs, units),
        copts = FSDP2_COPTS + prefix_copts + copts,
        deps = deps + prefix_deps,
        **kwargs
    )

def fsdp2_cc_test(name, srcs, units = 1, prefix = True, copts = [], deps = [], **kwargs):
    """A GoogleTest binary of ours; see fsdp2_cc_library. Tests that change what a process has but once get a binary alone."""
    prefix_copts, prefix_deps = _begin_with_prefix(prefix)
    cc_test(
        name = name,
        srcs = _sources(name, srcs, units),
        copts = FSDP2_COPTS + prefix_copts + copts,
        deps = deps + ["@googletest//:gtest_main"] + prefix_deps,
        **kwargs
    )
