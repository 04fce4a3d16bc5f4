"""Stand-ins for the repositories that Bazel expects from the network, so that Debian's Bazel 4.2 builds offline."""

_RULES_CC = """
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library
cc_flags_supplier = None
compiler_flag = None
"""

def _rules_cc_shim_impl(ctx):
    ctx.file("BUILD")
    ctx.file("cc/BUILD")
    ctx.file("cc/defs.bzl", '"""Hands on the native rules."""\n' + _RULES_CC)

rules_cc_shim = repository_rule(implementation = _rules_cc_shim_impl)

def _remote_coverage_tools_shim_impl(ctx):
    ctx.file("BUILD", """
filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
""")

remote_coverage_tools_shim = repository_rule(implementation = _remote_coverage_tools_shim_impl)
