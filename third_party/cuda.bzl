"""The repository @cuda: CUDA's compiler and headers, NCCL, and LibTorch's CUDA libraries (cuda.sh says of which versions)."""

load(":component.bzl", "describe_components")

def _answer(ctx, *question):
    result = ctx.execute([ctx.path(Label("//third_party:cuda.sh"))] + list(question), timeout = 3600)
    if result.return_code != 0:
        fail("CUDA could not be had:\n" + result.stderr)
    return result.stdout.strip()

def _cuda_repository_impl(ctx):
    # What this rule reads comes first: a file named later would start it over.
    for script in ["cuda.sh", "fetch.sh", "libtorch.sh", "wheels.sh"]:
        ctx.path(Label("//third_party:" + script))
    ctx.symlink(Label("//third_party:cuda.BUILD"), "BUILD")
    ctx.symlink(Label("//third_party:libtorch_library.bzl"), "libtorch_library.bzl")
    root = ctx.path(_answer(ctx, "directory"))
    for folder in ["bin", "include", "lib", "nvvm"]:
        ctx.symlink(root.get_child(folder), folder)

    components = {}
    for line in _answer(ctx, "parts", "licenses").split("\n"):
        name, version, sha256 = line.split(" ")
        components[name] = {
            "license": "LicenseRef-NVIDIA-Proprietary" if name != "nvidia-nccl-cu13" else "BSD-3-Clause",
            "purl": "pkg:pypi/%s@%s" % (name, version),
            "sha256": sha256,
            "version": version,
        }
    describe_components(ctx, components)

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = [
        "FSDP2_CUDA",
        "FSDP2_LIBTORCH",
        "FSDP2_LIBTORCH_VERSION",
    ],
    doc = "CUDA from pinned wheels or from the toolkit in the directory FSDP2_CUDA.",
)
