"""The repository @libtorch: headers and CPU libraries of LibTorch (libtorch.sh says of which version)."""

load(":component.bzl", "describe_components")

# What its wheels say of their licenses.
_LICENSES = {
    "nvidia-cuda-cupti": "LicenseRef-NVIDIA-Proprietary",
    "nvidia-cuda-runtime": "LicenseRef-NVIDIA-Proprietary",
    "torch": "BSD-3-Clause",
}

def _answer(ctx, script, *question):
    result = ctx.execute([script] + list(question), timeout = 3600)
    if result.return_code != 0:
        fail("LibTorch could not be had:\n" + result.stderr)
    return result.stdout.strip()

def _component(name, version, sha256 = None):
    component = {"license": _LICENSES[name], "purl": "pkg:pypi/%s@%s" % (name, version), "version": version}
    if sha256:
        component["sha256"] = sha256
    return component

def _libtorch_repository_impl(ctx):
    # What this rule reads comes first: a file named later would start it over.
    script = ctx.path(Label("//third_party:libtorch.sh"))
    ctx.path(Label("//third_party:fetch.sh"))
    ctx.path(Label("//third_party:wheels.sh"))
    ctx.symlink(Label("//third_party:libtorch.BUILD"), "BUILD")
    ctx.symlink(Label("//third_party:libtorch_library.bzl"), "libtorch_library.bzl")

    root = ctx.path(_answer(ctx, script, "directory"))

    # All libraries go into one folder, as libtorch_cpu.so looks for what it needs next to itself. In an installed `torch`
    # Python package those of CUDA lie in a package of their own.
    ctx.symlink(root.get_child("include"), "include")
    for name in ["libtorch_cpu.so", "libc10.so"]:
        ctx.symlink(root.get_child("lib").get_child(name), "lib/" + name)
    runtime = []
    for name in ["libcupti.so.13", "libcudart.so.13", "libgomp.so.1"]:
        for directory in [root.get_child("lib"), ctx.path("%s/nvidia/cu13/lib" % root.dirname)]:
            if directory.get_child(name).exists:
                ctx.symlink(directory.get_child(name), "lib/" + name)

                # A linker script in the library's place at link time: needed only by those who use its symbols.
                ctx.file("link/%s.ifso" % name.split(".")[0], "INPUT(AS_NEEDED(%s))\n" % directory.get_child(name))
                runtime.append(name)
                break

    ctx.file("paths.bzl", "".join(["%s = %r\n" % constant for constant in [
        ("LIBTORCH_CXX_STANDARD", _answer(ctx, script, "standard")),
        ("LIBTORCH_LIB", str(root.get_child("lib"))),
        ("LIBTORCH_VERSION", _answer(ctx, script, "version")),
        ("RUNTIME", runtime),
    ]]))

    parts = [line.split(" ") for line in _answer(ctx, script, "parts", "licenses").split("\n")]
    components = {part[0]: _component(*part) for part in parts}
    if "libgomp.so.1" in runtime:
        components["libgomp"] = {"license": "GPL-3.0-or-later WITH GCC-exception-3.1"}
    describe_components(ctx, components)

libtorch_repository = repository_rule(
    implementation = _libtorch_repository_impl,
    environ = [
        "FSDP2_LIBTORCH",
        "FSDP2_LIBTORCH_VERSION",
    ],
    doc = "LibTorch from pinned wheels, of the version that FSDP2_LIBTORCH_VERSION names, or from the directory FSDP2_LIBTORCH.",
)
