"""The same repositories for Bazel modules."""

load(":repositories.bzl", "third_party_repositories")

def _declare(rule, **kwargs):
    rule(**kwargs)

def _third_party_impl(_ctx):
    third_party_repositories(_declare)

third_party = module_extension(implementation = _third_party_impl)
