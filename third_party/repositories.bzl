"""Everything that libfsdp2 builds against. Other workspaces call libfsdp2_repositories() too; what they declared before stays."""

load(":cuda.bzl", "cuda_repository")
load(":debian.bzl", "deb_repository", "debian_source_repository")
load(":libtorch.bzl", "libtorch_repository")
load(":shims.bzl", "remote_coverage_tools_shim", "rules_cc_shim")

def _maybe(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)

def _debian_bazel_repositories():
    """What released versions of Bazel fetch for themselves, from the packages that come with Debian's."""
    _maybe(rules_cc_shim, name = "rules_cc")
    _maybe(native.local_repository, name = "platforms", path = "/usr/share/bazel/platforms")
    _maybe(native.local_repository, name = "rules_java", path = "/usr/share/bazel/rules/java")
    _maybe(native.local_repository, name = "rules_proto", path = "/usr/share/bazel/rules/proto")
    _maybe(remote_coverage_tools_shim, name = "remote_coverage_tools")

def third_party_repositories(declare):
    """What libfsdp2 builds against on every version of Bazel.

    Args:
      declare: called with a repository rule and its attributes.
    """
    declare(libtorch_repository, name = "libtorch")
    declare(cuda_repository, name = "cuda")  # fetched by --config=cuda alone
    declare(
        deb_repository,
        name = "gloo",  # headers only: the code is in LibTorch
        build_file = Label("//third_party:gloo.BUILD"),
        license = "BSD-3-Clause",
        packages = {"libgloo-dev=0.0~git20220518.5b14351-3": "80529c9fd8af452faf489e686b94bf87075965c40673803810c4f41634b1e299"},
        strip_prefix = "usr",
        variable = "FSDP2_GLOO",
    )
    declare(
        deb_repository,
        name = "nlohmann_json",
        build_file = Label("//third_party:nlohmann_json.BUILD"),
        license = "MIT",
        packages = {"nlohmann-json3-dev=3.11.2-2": "ec57940def6b6186c30be0e0ee81d1e58f86d11a54a145b28686a1e3e4aae801"},
        strip_prefix = "usr",
        variable = "FSDP2_NLOHMANN_JSON",
    )
    declare(
        deb_repository,
        name = "cli11",
        build_file = Label("//third_party:cli11.BUILD"),
        license = "BSD-3-Clause",
        packages = {"libcli11-dev=2.1.2+ds-1": "f1f6ee9ec053e0e0bcec47345e241b6a8ee006321248b4329e9ce88d2b4b64a8"},
        strip_prefix = "usr",
        variable = "FSDP2_CLI11",
    )
    declare(
        deb_repository,
        name = "googletest",
        build_file = Label("//third_party:googletest.BUILD"),
        license = "BSD-3-Clause",
        packages = {"googletest=1.12.1-0.2": "927be72067517da503b6538026d451455c9e860f5dbfe237f792543db7d5a928"},
        strip_prefix = "usr/src/googletest",
        variable = "FSDP2_GOOGLETEST",
    )
    declare(
        debian_source_repository,
        name = "xxhash",
        build_file = Label("//third_party:xxhash.BUILD"),
        license = "BSD-2-Clause",
        package = "xxhash",
        sha256 = "3bb6b7d6f30c591dd65aaaff1c8b7a5b94d81687998ca9400082c739a690436c",
        variable = "FSDP2_XXHASH",
        version = "0.8.1",
    )
    declare(
        debian_source_repository,
        name = "libdeflate",
        build_file = Label("//third_party:libdeflate.BUILD"),
        license = "MIT",
        package = "libdeflate",
        sha256 = "89e7df898c37c3427b0f39aadcf733731321a278771d20fc553f92da8d4808ac",
        variable = "FSDP2_LIBDEFLATE",
        version = "1.14",
    )
    declare(
        debian_source_repository,
        name = "libjpeg_turbo",
        build_file = Label("//third_party:libjpeg_turbo.BUILD"),
        license = "IJG AND BSD-3-Clause AND Zlib",
        package = "libjpeg-turbo",
        sha256 = "254f3642b04e309fee775123133c6464181addc150499561020312ec61c1bf7c",
        variable = "FSDP2_LIBJPEG_TURBO",
        version = "2.1.5",
    )
    declare(
        debian_source_repository,
        name = "libpng",
        build_file = Label("//third_party:libpng.BUILD"),
        license = "libpng-2.0",
        package = "libpng1.6",
        sha256 = "a00e9d2f2f664186e4202db9299397f851aea71b36a35e74910b8820e380d441",
        variable = "FSDP2_LIBPNG",
        version = "1.6.39",
    )
    declare(
        debian_source_repository,
        name = "zlib",
        build_file = Label("//third_party:zlib.BUILD"),
        license = "Zlib",
        package = "zlib",
        sha256 = "71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1",
        variable = "FSDP2_ZLIB",
        version = "1.2.13",
    )
    declare(
        debian_source_repository,
        name = "yaml_cpp",
        build_file = Label("//third_party:yaml_cpp.BUILD"),
        license = "MIT",
        package = "yaml-cpp",
        sha256 = "dc63708605404e0b963e0ca3a9619d1c8270eda2839603e6fa0384e5e51e5312",
        variable = "FSDP2_YAML_CPP",
        version = "0.7.0",
    )
    declare(
        debian_source_repository,
        name = "benchmark",
        build_file = Label("//third_party:benchmark.BUILD"),
        license = "Apache-2.0",
        package = "benchmark",
        sha256 = "6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7",
        variable = "FSDP2_BENCHMARK",
        version = "1.7.1",
    )
    declare(
        debian_source_repository,
        name = "protobuf",
        build_file = Label("//third_party:protobuf.BUILD"),
        license = "BSD-3-Clause",
        package = "protobuf",
        sha256 = "930c2c3b5ecc6c9c12615cf5ad93f1cd6e12d0aba862b572e076259970ac3a53",
        variable = "FSDP2_PROTOBUF",
        version = "3.21.12",
    )
    declare(
        deb_repository,
        name = "protoc",  # the compiler ready-made: building it takes longer than building libfsdp2
        build_file = Label("//third_party:protoc.BUILD"),
        license = "BSD-3-Clause",
        packages = {
            "libprotobuf32=3.21.12-3+deb12u1": "e9e4e8cf0d2c48e2e3c17308e2093b3856f470b77e0022b7d906fb1b3551f213",
            "libprotoc32=3.21.12-3+deb12u1": "27770048715fdebe3dab2f6603ca6667ac72ab474989226d2f70153522286adf",
            "protobuf-compiler=3.21.12-3+deb12u1": "698e96f08152490ee576ead6a9116e1239514de66473305473f67ce2b5408e23",
        },
        strip_prefix = "usr",
        variable = "FSDP2_PROTOC",
    )

def _bazel_repositories():
    if not native.bazel_version or not native.bazel_version[0].isdigit():
        _debian_bazel_repositories()  # Debian's Bazel does not know its own version

def libfsdp2_repositories():
    """Declares every repository that //:fsdp2 and its tests need."""
    _bazel_repositories()
    third_party_repositories(_maybe)

def libtorch_repositories():
    """Declares @libtorch alone, for workspaces that use LibTorch without libfsdp2."""
    _bazel_repositories()
    _maybe(libtorch_repository, name = "libtorch")
