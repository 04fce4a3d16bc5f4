"""
libfsdp2's C ABI, one to one, in `libfsdp2.jl`: the C headers document every function. Where a name is a reserved word of Julia
it ends in `_`. `check` turns a status into an exception.

The library is the one that `ENV["FSDP2_LIBRARY"]` names, else what the system's loader finds.
"""
module FSDP2

import Libdl

const libfsdp2 = "libfsdp2.so.0"

include("libfsdp2.jl")
include("error.jl")

function __init__()
    # Once loaded from wherever it is, the library answers to its soname in every @ccall. Not with Julia's RTLD_DEEPBIND: the
    # library would then unwind C++ exceptions by libgcc, but libstdc++ raise them by the libunwind that Julia brings.
    library = get(ENV, "FSDP2_LIBRARY", libfsdp2)
    try
        Libdl.dlopen(library, Libdl.RTLD_LAZY)
    catch failure
        error("cannot load $library; set FSDP2_LIBRARY to the path of libfsdp2.so in the environment: $(failure.msg)")
    end
    check(fsdp2_check_version(FSDP2_HEADER_VERSION))
end

end
