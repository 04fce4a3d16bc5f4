"""Targets of libfsdp2_cuda.so. Without --config=cuda they are skipped, and nothing of CUDA is fetched."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")
load(":cc.bzl", "fsdp2_cc_library")

# A target that needs CUDA to build.
NEEDS_CUDA = select({
    "//bazel:cuda": [],
    "//conditions:default": ["//bazel:left_out"],
})

def with_cuda(labels):
    """Labels in @cuda, and others that are there only with it.

    Args:
      labels: of dependencies.
    """
    return select({
        "//bazel:cuda": labels,
        "//conditions:default": [],
    })

# Where this repository's headers begin, also where another workspace builds it.
_ROOT = Label("//bazel:cuda.bzl").workspace_root or "."

# Machine code for the A100's and the H100's architecture, and PTX that the driver compiles for newer ones.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
]

def _compile(name, src, hdrs):
    """src.cu -> an object with the code of all architectures."""
    native.genrule(
        name = name,
        srcs = [src] + hdrs,
        outs = [name + ".pic.o"],
        cmd = " ".join([
            "$(location @cuda//:bin/nvcc) -std=c++17 -O3 --Werror=all-warnings -I%s" % _ROOT,
            "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall",
        ] + _ARCHITECTURES + ["-c $(location %s) -o $@" % src]),
        target_compatible_with = NEEDS_CUDA,
        tools = with_cuda([
            "@cuda//:bin/nvcc",
            "@cuda//:compiler",
        ]),
        visibility = ["//visibility:private"],
    )

def fsdp2_cuda_library(name, srcs, hdrs = [], kernels = [], kernel_hdrs = [], deps = [], **kwargs):
    """A library of libfsdp2_cuda.so.

    Args:
      name: of the library.
      srcs: C++ sources and private headers, compiled by the C++ compiler.
      hdrs: headers for others.
      kernels: CUDA sources (.cu), which include nothing of LibTorch: compiling its headers as CUDA takes a minute a file.
      kernel_hdrs: headers of other rooms that the kernels include.
      deps: the rooms and libraries it uses besides CUDA and LibTorch.
      **kwargs: handed on to cc_library.
    """
    objects = []
    for kernel in kernels:
        target = "%s_%s" % (name, kernel.replace(".cu", ""))
        _compile(target, kernel, [header for header in srcs + hdrs if header.endswith(".h")] + kernel_hdrs)
        objects.append(target)
    if kernels:
        cc_library(
            name = name + "_objects",
            srcs = objects,
            target_compatible_with = NEEDS_CUDA,
            alwayslink = True,
            visibility = ["//visibility:private"],
        )
    fsdp2_cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        # The prefix is LibTorch's CPU headers, which this room uses few of.
        prefix = False,
        target_compatible_with = NEEDS_CUDA,
        deps = deps + ["@libtorch//:torch"] + with_cuda(["@cuda"]) + ([name + "_objects"] if kernels else []),
        **kwargs
    )

def fsdp2_cuda_plugin(name, exports, deps, visibility = None):
    """Builds lib<name>.so, which libfsdp2.so opens at run time (core/device/plugin.h).

    Args:
      name: of the plug-in.
      exports: the version script; symbols it does not name stay inside.
      deps: the fsdp2_cuda_library targets that make it up.
      visibility: of lib<name>.so.
    """
    cc_binary(
        name = "lib%s.so" % name,
        linkopts = [
            "-Wl,-soname,lib%s.so" % name,
            "-Wl,--version-script,$(location %s)" % exports,
            "-Wl,-z,defs",
            # LibTorch's CUDA libraries need others that no build has; opening the plug-in must open them all the same.
            "-Wl,--allow-shlib-undefined",
            "-Wl,--no-as-needed",
            "-Wl,-rpath,$$ORIGIN",
        ],
        linkshared = True,
        target_compatible_with = NEEDS_CUDA,
        visibility = visibility,
        deps = deps + [exports],
    )
