"""A shared library that non-Bazel processes load by path and Bazel targets link like any other library."""

load("@libtorch//:paths.bzl", "LIBTORCH_LIB")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_import", "cc_library")

# Where an installed library looks for LibTorch: beside itself, then in a folder that //install makes.
INSTALLED_RUNPATH = "$ORIGIN:$ORIGIN/fsdp2/libtorch/lib"

def _soname_link_impl(ctx):
    ctx.actions.symlink(output = ctx.outputs.soname, target_file = ctx.file.library)
    return [DefaultInfo(files = depset([ctx.outputs.soname]))]

_soname_link = rule(
    implementation = _soname_link_impl,
    attrs = {
        "library": attr.label(mandatory = True, allow_single_file = True),
        "soname": attr.output(mandatory = True),
    },
)

def fsdp2_shared_library(name, soversion, exports, deps, hdrs = [], includes = [], linkopts = [], visibility = None):
    """Builds lib<name>.so and a target <name> to depend on.

    Building <name> yields bazel-bin/<package>/lib<name>.so and, next to it, the link lib<name>.so.<soversion> that is its
    soname. It finds LibTorch from wherever it is loaded. //install gives copies only the end of its run path, which is
    INSTALLED_RUNPATH.

    Args:
      name: the target to depend on; the file is lib<name>.so.
      soversion: the number behind .so in the soname.
      exports: the version script; symbols it does not name stay inside.
      deps: the cc_library targets that make up the library, with alwayslink where nothing inside refers to them.
      hdrs: the public headers, handed on to dependants (a cc_library label or files).
      includes: include directories for dependants, relative to the package.
      linkopts: further linker options.
      visibility: of <name>.
    """
    library = "lib%s.so" % name
    soname = "%s.%s" % (library, soversion)
    cc_binary(
        name = library,
        linkopts = [
            "-Wl,-soname," + soname,
            "-Wl,--version-script,$(location %s)" % exports,
            "-Wl,-z,defs",
            "-Wl,--as-needed",
            "-Wl,-rpath," + LIBTORCH_LIB,
            "-Wl,-rpath," + INSTALLED_RUNPATH.replace("$", "$$"),
        ] + linkopts,
        linkshared = True,
        deps = deps + [exports],
        visibility = visibility,
    )
    _soname_link(
        name = name + "_soname",
        library = library,
        soname = soname,
        visibility = visibility,
    )
    cc_import(
        name = name + "_import",
        interface_library = library,
        shared_library = soname,
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        hdrs = hdrs,
        data = [library, soname],
        includes = includes,
        visibility = visibility,
        deps = [name + "_import"],
    )
