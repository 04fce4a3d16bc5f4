"""
FSDP2 trains models whose parameters, gradients and optimizer states are cut over many ranks, with libfsdp2. README.md begins with a
whole program. `FSDP2Error` is what fails; `FSDP2.Handle` says who closes what; `share` says how arrays and tensors relate.

The names that begin with fsdp2_ are libfsdp2's C ABI, one to one: `libfsdp2.jl`, documented by the C headers. Where a name is a reserved
word of Julia it ends in `_`. They are not exported.

The library is the one that `ENV["FSDP2_LIBRARY"]` names, else that of the artifact "libfsdp2" if the package has an Artifacts.toml, else
what the system's loader finds.
"""
module FSDP2

import Libdl
import Pkg
import Statistics

const libfsdp2 = "libfsdp2.so.0"

# The raw layer.
include("call.jl")
include("libfsdp2.jl")
include("error.jl")

# What every noun uses.
include("handle.jl")
include("dtype.jl")
include("options.jl")
include("json.jl")

# One noun each, in the order of use.
include("runtime.jl")
include("mesh.jl")
include("scope.jl")
include("pressure.jl")
include("tensor.jl")
include("array.jl")
include("generator.jl")
include("op.jl")
include("math.jl")
include("module.jl")
include("infer.jl")
include("layers.jl")
include("custom.jl")
include("layer.jl")
include("function.jl")
include("collective.jl")
include("shard.jl")
include("unit.jl")
include("hook.jl")
include("plan.jl")
include("profile.jl")
include("config.jl")
include("optimizer.jl")
include("tokenizer.jl")
include("loader.jl")
include("step.jl")
include("config_objects.jl")
include("state.jl")
include("checkpoint.jl")
include("exports.jl")

"The file of the library, or its name for the system's loader."
function library_file()
    chosen = get(ENV, "FSDP2_LIBRARY", "")
    isempty(chosen) || return chosen
    bound = joinpath(dirname(@__DIR__), "Artifacts.toml")
    isfile(bound) && Pkg.Artifacts.artifact_hash("libfsdp2", bound) !== nothing || return libfsdp2
    joinpath(Pkg.Artifacts.ensure_artifact_installed("libfsdp2", bound), "lib", libfsdp2)
end

function __init__()
    # Once loaded from wherever it is, the library answers to its soname in every @ccall. Not with Julia's RTLD_DEEPBIND: the
    # library would then unwind C++ exceptions by libgcc, but libstdc++ raise them by the libunwind that Julia brings.
    library, remedy = library_file(), "set FSDP2_LIBRARY to the path of libfsdp2.so in the environment"
    opened = try
        Libdl.dlopen(library, Libdl.RTLD_LAZY)
    catch failure
        error("cannot load $library; $remedy: $(failure.msg)")
    end
    Libdl.dlsym(opened, :fsdp2_check_version; throw_error = false) === nothing && error("$library is another library; $remedy")
    Base.invokelatest(check_version)
end

# Not in `__init__`, nor where its compiler looks: to compile a @ccall opens the library by its soname, Julia's way, before there is one
# that answers to it.
check_version() = check(fsdp2_check_version(FSDP2_HEADER_VERSION))

end
