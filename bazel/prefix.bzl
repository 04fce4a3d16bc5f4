"""A header that is compiled once, for all units that begin with it."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load(":copts.bzl", "FSDP2_COPTS")

# The templates that the headers use are instantiated here and not in each unit, as gcc has to.
_CLANG_COPTS = ["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"]

def _compile_header(ctx, toolchain, context, header):
    """Compiles `header` with the options that units get; compilers take the result for no others."""
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    is_clang = toolchain.compiler.startswith("clang")
    compiled = ctx.actions.declare_file(header.basename + (".pch" if is_clang else ".gch"))
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = compiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + FSDP2_COPTS + ["-x", "c++-header"] +
                             (_CLANG_COPTS if is_clang else []),
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([header], transitive = [toolchain.all_files, context.headers]),
        outputs = [compiled],
        mnemonic = "CppPrefix",
        # clang's result has the paths of this machine, so it goes to no cache.
        execution_requirements = {"no-cache": "1"} if is_clang else {},
        progress_message = "Compiling the common prefix",
    )
    return compiled

def _fsdp2_prefix_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    header = ctx.actions.declare_file("fsdp2_%s.h" % ctx.label.name)
    needed = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    ctx.actions.expand_template(template = ctx.file.header, output = header, substitutions = {})
    headers = [header, _compile_header(ctx, toolchain, needed.compilation_context, header)]
    context = cc_common.create_compilation_context(
        headers = depset(headers),
        quote_includes = depset([header.dirname]),
    )

    # Headers alone: a unit that uses none of their functions, such as those of the launcher, links no library.
    return [
        DefaultInfo(files = depset(headers)),
        cc_common.merge_cc_infos(cc_infos = [
            CcInfo(compilation_context = context),
            CcInfo(compilation_context = needed.compilation_context),
        ]),
    ]

fsdp2_prefix = rule(
    implementation = _fsdp2_prefix_impl,
    doc = "What `-include fsdp2_<name>.h` brings to those that depend on it: `header`, compiled.",
    attrs = {
        "header": attr.label(mandatory = True, allow_single_file = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
