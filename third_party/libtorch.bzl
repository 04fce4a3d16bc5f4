"""The repository @libtorch: headers and CPU libraries of the pinned LibTorch (see libtorch.sh)."""

def _libtorch_repository_impl(ctx):
    # What this rule reads comes first: a file named later would start it over.
    script = ctx.path(Label("//third_party:libtorch.sh"))
    ctx.path(Label("//third_party:fetch.sh"))
    ctx.symlink(Label("//third_party:libtorch.BUILD"), "BUILD")
    ctx.symlink(Label("//third_party:libtorch_library.bzl"), "libtorch_library.bzl")

    result = ctx.execute([script], timeout = 3600)
    if result.return_code != 0:
        fail("LibTorch could not be had:\n" + result.stderr)
    root = ctx.path(result.stdout.strip())

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

    ctx.file("paths.bzl", 'LIBTORCH_LIB = "%s"\nRUNTIME = %r\n' % (root.get_child("lib"), runtime))

libtorch_repository = repository_rule(
    implementation = _libtorch_repository_impl,
    environ = ["FSDP2_LIBTORCH"],
    doc = "LibTorch from the pinned wheels, or from the directory that FSDP2_LIBTORCH names.",
)
