"""What a repository knows of the components in it, for the SBOM of those who link them."""

def describe_components(ctx, components):
    """Writes components.json.

    Args:
      ctx: of the repository rule.
      components: by name, each with its license and, as far as they are known, version, purl and sha256.
    """
    ctx.file("components.json", json.encode([dict(components[name], name = name) for name in components]) + "\n")
