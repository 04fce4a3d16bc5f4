"""Writes the SBOM of the installed tree, as CycloneDX JSON, to stdout.

  sbom.py VERSION LIBTORCH_CONFIG LIBTORCH_LICENSE_OR_NONE COMPONENTS_JSON...

No version is written here. Those of the repositories come from third_party, through the components.json that each has; those of
what LibTorch has inside come from LibTorch's own description of its build, and their names and licenses from its license file.
"""

import json
import re
import sys


def license_of(name):
    if " WITH " in name:
        return {"expression": name}
    has_id = " " not in name and not name.startswith("LicenseRef-")
    return {"license": {"id" if has_id else "name": name}}


def component(name, license, version=None, purl=None, sha256=None):
    made = {"type": "library", "bom-ref": name, "name": name, "licenses": [license_of(license)]}
    if version:
        made["version"] = version
    if purl:
        made["purl"] = purl
    if sha256:
        made["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return made


def versions_inside(config):
    """What LibTorch says of the libraries that compute for it: by name, the license and the version."""
    found = {}
    if match := re.search(r"Math Kernel Library Version (\S+?)-Product Build (\d+)", config):
        found["mkl"] = ("Intel Simplified Software License", f"{match[1]} build {match[2]}")
    if match := re.search(r"MKL-DNN v(\S+)", config):
        found["onednn"] = ("Apache-2.0", match[1])
    return found


def listed_inside(license_text):
    """What LibTorch's license file lists as part of its sources: the license by name, sources of sources left out."""
    entry = re.compile(
        r"^Name: (.+)\nLicense: (.+)\nFiles: /pytorch/third_party/[^/,\n]+,?$", re.MULTILINE
    )
    return {match[1]: match[2] for match in entry.finditer(license_text)}


def inside_libtorch(config, license_text):
    versions = versions_inside(config)
    listed = {name: (license, None) for name, license in listed_inside(license_text).items()}
    parts = {**listed, **versions}
    made = [component(name, *parts[name]) for name in sorted(parts)]
    for part in made:
        part["bom-ref"] = "torch/" + part["name"]
    return made


def main(version, config_file, license_file, *component_files):
    components = []
    for path in component_files:
        with open(path) as file:
            components += [component(**described) for described in json.load(file)]
    with open(config_file) as file:
        config = file.read()
    license_text = ""
    if license_file != "none":
        with open(license_file) as file:
            license_text = file.read()
    torch = next(made for made in components if made["name"] == "torch")
    torch["components"] = inside_libtorch(config, license_text)
    names = sorted(made["name"] for made in components)
    beside_torch = [name for name in names if name == "libgomp" or name.startswith("nvidia-")]
    json.dump(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": component("libfsdp2", "Apache-2.0", version)},
            "components": sorted(components, key=lambda made: made["name"]),
            "dependencies": [
                {
                    "ref": "libfsdp2",
                    "dependsOn": [name for name in names if name not in beside_torch],
                },
                {"ref": "torch", "dependsOn": beside_torch},
            ],
        },
        sys.stdout,
        indent=2,
    )
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
