"""Compiler flags of libfsdp2's own code; other repositories are compiled without them."""

load("@libtorch//:paths.bzl", "LIBTORCH_CXX_STANDARD", "LIBTORCH_VERSION")

_WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]

# In C++20, which the newest LibTorch asks for, gcc 12 sees overruns and unset values in its own std::string and std::variant.
_CXX20_WARNINGS = [
    "-Wno-error=array-bounds",
    "-Wno-error=maybe-uninitialized",
    "-Wno-error=restrict",
] if LIBTORCH_CXX_STANDARD == "c++20" else []

# C++ sources: C++17, compiled as what LibTorch's headers want. Nothing but the C ABI leaves libfsdp2.so, so everything else is hidden.
FSDP2_COPTS = _WARNINGS + _CXX20_WARNINGS + [
    "-std=" + LIBTORCH_CXX_STANDARD,
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

# C sources: tests and examples of the C ABI, which is C11.
FSDP2_CONLYOPTS = _WARNINGS + ["-std=c11"]

# For tests that compare with the version of LibTorch, as a text.
LIBTORCH_VERSION_DEFINE = "LIBTORCH_VERSION=\\\"%s\\\"" % LIBTORCH_VERSION
