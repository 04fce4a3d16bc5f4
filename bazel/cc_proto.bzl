"""C++ classes for protocol buffers, on the lite runtime."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def fsdp2_cc_proto_library(name, src, **kwargs):
    """A cc_library of the messages in src; its header is included as "<package>/<src without .proto>.pb.h".

    Args:
      name: of the library.
      src: a .proto file of this package, with `option optimize_for = LITE_RUNTIME;`.
      **kwargs: handed on to cc_library.
    """
    stem = src[:-len(".proto")]
    native.genrule(
        name = name + "_generated",
        srcs = [src],
        outs = [stem + ".pb.cc", stem + ".pb.h"],
        # A wheel's or a system's protoc would do as well, but the generated code must match the runtime's version.
        cmd = "libraries=($(locations @protoc//:libraries)); " +
              "LD_LIBRARY_PATH=$$(dirname $${libraries[0]}) $(location @protoc//:protoc) " +
              "--proto_path=$$(dirname $(location %s)) --cpp_out=$(RULEDIR) $(location %s)" % (src, src),
        tools = [
            "@protoc//:libraries",
            "@protoc//:protoc",
        ],
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        copts = [
            "-std=c++17",
            "-fvisibility=hidden",
            "-w",
        ],
        deps = ["@protobuf//:protobuf_lite"],
        **kwargs
    )
