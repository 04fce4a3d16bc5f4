"""The installed tree, packed."""

LinkedInfo = provider(doc = "What a program is linked from.", fields = {"repositories": "their names, as a depset"})

def _linked_repositories_impl(target, ctx):
    own = [target.label.workspace_name] if CcInfo in target else []
    below = [dep[LinkedInfo].repositories for dep in getattr(ctx.rule.attr, "deps", []) if LinkedInfo in dep]
    return [LinkedInfo(repositories = depset(own, transitive = below))]

_linked_repositories = aspect(
    implementation = _linked_repositories_impl,
    attr_aspects = ["deps"],
)

def _expect_components(ctx):
    """Fails unless the repositories that the programs are linked from are those that the SBOM describes."""
    linked = depset(transitive = [program[LinkedInfo].repositories for program in ctx.attr.programs]).to_list()
    linked = sorted([name for name in linked if name != ctx.label.workspace_name])
    described = sorted([file.label.workspace_name for file in ctx.attr.components])
    if linked != described:
        fail("linked are %s, but the SBOM describes %s" % (linked, described))

def _fsdp2_archive_impl(ctx):
    _expect_components(ctx)
    root = "libfsdp2-" + ctx.attr.version
    archive = ctx.actions.declare_file("%s-%s.tar.gz" % (root, ctx.attr.platform))
    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest")
    lines = []
    inputs = []
    for target, folder in ctx.attr.files.items():
        for file in target.files.to_list():
            lines.append("file %s %s/%s" % (file.path, folder, file.basename))
            inputs.append(file)
    for target, folder in ctx.attr.kept.items():
        for file in target.files.to_list():
            lines.append("kept %s %s/%s" % (file.path, folder, file.short_path))
            inputs.append(file)
    lines += ["link %s %s" % (to, link) for link, to in ctx.attr.links.items()]
    ctx.actions.write(manifest, "\n".join(lines) + "\n")
    ctx.actions.run(
        executable = ctx.executable._pack,
        arguments = [manifest.path, root, archive.path],
        inputs = inputs + [manifest],
        outputs = [archive],
        mnemonic = "Pack",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([archive]), runfiles = ctx.runfiles(files = [archive]))]

fsdp2_archive = rule(
    implementation = _fsdp2_archive_impl,
    doc = "libfsdp2-VERSION-PLATFORM.tar.gz, which unpacks to a folder libfsdp2-VERSION.",
    attrs = {
        "components": attr.label_list(allow_files = True, doc = "What the SBOM is made from: one file of each linked repository."),
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "Files, and the folders that they go to."),
        "kept": attr.label_keyed_string_dict(allow_files = True, doc = "Files of the repository, and the folders below which they keep their paths."),
        "links": attr.string_dict(doc = "Links, and what they lead to."),
        "platform": attr.string(mandatory = True),
        "programs": attr.label_list(aspects = [_linked_repositories], doc = "Whose parts the SBOM must name."),
        "version": attr.string(mandatory = True),
        "_pack": attr.label(default = ":pack.sh", allow_single_file = True, cfg = "exec", executable = True),
    },
)
