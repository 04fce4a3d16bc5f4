# julia artifact.jl PREFIX [ARCHIVE URL]
#
# Makes an installed prefix the artifact "libfsdp2" of FSDP2.jl for this platform: a copy in the depot, and FSDP2/Artifacts.toml, which
# names it. FSDP2.jl then needs neither the prefix nor FSDP2_LIBRARY. With ARCHIVE and URL it also writes the artifact to ARCHIVE, a
# .tar.gz, and Artifacts.toml says that it can be had at URL: machines that do not have it fetch it from there.

import Pkg
using Pkg.Artifacts

length(ARGS) in (1, 3) || error("usage: julia artifact.jl PREFIX [ARCHIVE URL]")
const prefix = abspath(ARGS[1])
isfile(joinpath(prefix, "lib", "libfsdp2.so.0")) || error("expected an installed libfsdp2 in $prefix, found no lib/libfsdp2.so.0")

const bound = joinpath(@__DIR__, "FSDP2", "Artifacts.toml")
# For any such system: the library brings or finds what else it needs.
const platform = VERSION < v"1.6" ? Pkg.BinaryPlatforms.Linux(Sys.ARCH, libc = :glibc) :
                 Base.BinaryPlatforms.Platform(string(Sys.ARCH), "linux"; libc = "glibc")

hash = create_artifact() do directory
    for folder in ("bin", "include", "lib", "share")
        cp(joinpath(prefix, folder), joinpath(directory, folder))
    end
end
download_info = length(ARGS) == 1 ? nothing : [(ARGS[3], archive_artifact(hash, ARGS[2]))]
bind_artifact!(bound, "libfsdp2", hash; platform = platform, download_info = download_info, force = true)
println(artifact_path(hash))
