"""Prebuilt shared libraries that need each other, as one C++ library."""

def _prebuilt_libraries_impl(ctx):
    toolchain = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo]
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    interfaces = {file.basename.split(".")[0]: file for file in ctx.files.interfaces}
    libraries = [
        cc_common.create_library_to_link(
            actions = ctx.actions,
            feature_configuration = features,
            cc_toolchain = toolchain,
            dynamic_library = file,
            interface_library = interfaces.get(file.basename.split(".")[0]),
        )
        for file in ctx.files.libraries
    ]
    linking = cc_common.create_linking_context(linker_inputs = depset([
        cc_common.create_linker_input(owner = ctx.label, libraries = depset(libraries)),
    ]))
    return [
        DefaultInfo(files = depset(ctx.files.libraries), runfiles = ctx.runfiles(files = ctx.files.libraries)),
        CcInfo(linking_context = linking),
    ]

# Bazel gives the runtime libraries of one target one folder, so they find each other there through $ORIGIN; cc_import would
# give each a folder of its own.
prebuilt_libraries = rule(
    implementation = _prebuilt_libraries_impl,
    attrs = {
        "libraries": attr.label_list(allow_files = True, doc = "Shared libraries, loaded at run time."),
        "interfaces": attr.label_list(allow_files = True, doc = "What to link against in place of the library of that name."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
