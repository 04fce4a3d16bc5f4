"""Repositories out of Debian packages: unpacked without root, sources pinned by checksum."""

load(":component.bzl", "describe_components")

def _fetched(ctx, kind, sha256, name):
    result = ctx.execute([ctx.path(Label("//third_party:fetch.sh")), kind, sha256, name], timeout = 1800)
    if result.return_code != 0:
        fail("%s could not be fetched (%s names a local copy):\n%s" % (name, ctx.attr.variable, result.stderr))
    return result.stdout.strip()

def _run(ctx, script, arguments):
    result = ctx.execute(["bash", "-euc", script, "unpack"] + arguments)
    if result.return_code != 0:
        fail("%s could not be unpacked:\n%s" % (ctx.name, result.stderr))

def _local_copy(ctx):
    """Links the directory that the user names, if any; BUILD files in it give way to ours."""
    local = ctx.os.environ.get(ctx.attr.variable)
    if not local:
        return False
    if not ctx.path(local).exists:
        fail("%s=%s: no such directory" % (ctx.attr.variable, local))
    for entry in ctx.path(local).readdir():
        if entry.basename not in ["BUILD", "BUILD.bazel", "WORKSPACE"]:
            ctx.symlink(entry, entry.basename)
    return True

def _describe(ctx, version, purl, sha256):
    """For the SBOM; what a local copy is, nobody knows."""
    component = {"license": ctx.attr.license}
    if not ctx.os.environ.get(ctx.attr.variable):
        component.update(version = version, purl = purl, sha256 = sha256)
    describe_components(ctx, {ctx.name.split("~")[-1].split("+")[-1]: component})

# BUILD files further down would make packages of their folders and hide those from our globs.
_DROP_BUILD_FILES = "find . -name BUILD -o -name BUILD.bazel -o -name WORKSPACE | xargs -r rm -f"

def _deb_repository_impl(ctx):
    if not _local_copy(ctx):
        debs = [_fetched(ctx, "deb", sha256, package) for package, sha256 in ctx.attr.packages.items()]
        _run(ctx, """
            prefix=$1
            shift
            for deb; do dpkg-deb -x "$deb" unpacked; done
            mv "unpacked/$prefix"/* .
            rm -rf unpacked
        """ + _DROP_BUILD_FILES, [ctx.attr.strip_prefix] + debs)
    package, version = ctx.attr.packages.keys()[0].split("=")
    purl = "pkg:deb/debian/%s@%s" % (package, version.replace("+", "%2B"))
    _describe(ctx, version, purl, ctx.attr.packages.values()[0])
    ctx.symlink(ctx.attr.build_file, "BUILD")

def _source_repository_impl(ctx):
    if not _local_copy(ctx):
        tarball = _fetched(ctx, "source", ctx.attr.sha256, ctx.attr.package)
        _run(ctx, """
            tar --extract --file "$1" --strip-components=1
        """ + _DROP_BUILD_FILES, [tarball])
    _describe(ctx, ctx.attr.version, "pkg:generic/%s@%s" % (ctx.attr.package, ctx.attr.version), ctx.attr.sha256)
    ctx.symlink(ctx.attr.build_file, "BUILD")

_ATTRIBUTES = {
    "build_file": attr.label(mandatory = True, allow_single_file = True),
    "license": attr.string(mandatory = True, doc = "Its SPDX expression."),
    "variable": attr.string(mandatory = True, doc = "The environment variable that names a local copy."),
}

# The values of `variable` in repositories.bzl; a rule has to list what it reads.
_VARIABLES = [
    "FSDP2_BENCHMARK",
    "FSDP2_CLI11",
    "FSDP2_GLOO",
    "FSDP2_GOOGLETEST",
    "FSDP2_LIBDEFLATE",
    "FSDP2_LIBJPEG_TURBO",
    "FSDP2_LIBPNG",
    "FSDP2_NLOHMANN_JSON",
    "FSDP2_PROTOC",
    "FSDP2_PROTOBUF",
    "FSDP2_XXHASH",
    "FSDP2_YAML_CPP",
    "FSDP2_ZLIB",
]

deb_repository = repository_rule(
    implementation = _deb_repository_impl,
    attrs = dict(
        _ATTRIBUTES,
        packages = attr.string_dict(mandatory = True, doc = "PACKAGE=VERSION: sha256 of each."),
        strip_prefix = attr.string(mandatory = True, doc = "The folder of the packages that becomes the repository's root."),
    ),
    environ = _VARIABLES,
    doc = "One folder out of binary packages.",
)

debian_source_repository = repository_rule(
    implementation = _source_repository_impl,
    attrs = dict(
        _ATTRIBUTES,
        package = attr.string(mandatory = True),
        sha256 = attr.string(mandatory = True, doc = "Checksum of the upstream tarball: it outlives Debian's revisions."),
        version = attr.string(mandatory = True, doc = "The upstream version."),
    ),
    environ = _VARIABLES,
    doc = "The upstream tarball of a source package, as Debian carries it.",
)
