# The collector goes by what Julia has allocated, and the 32 bytes of a Tensor may stand for megabytes of the library's. Left to itself, it
# would not run once before a program that closes nothing has used up the machine. So it also runs whenever the process has grown by
# `growth_between_collections` since it was smallest. Tensors are counted, so that a program which closes what it has made, or leaves it to
# scopes, need not look.

const tensors_between_looks = 64
const growth_between_collections = 1 << 30

# Neither has to be exact, so no lock guards them.
const collectable = Ref(0) # tensors that `close` or the collector ends
const next_look = Ref(tensors_between_looks)
const growth_limit = Ref(0) # bytes of the process at which the collector runs next; 0: not known yet

function own(tensor::Tensor)
    collectable[] += 1
    collectable[] >= next_look[] && look_at_memory()
    invoke(own, Tuple{Handle}, tensor)
end

function ended(tensor::Tensor)
    tensor.scope === nothing || return
    collectable[] -= 1
    next_look[] = min(next_look[], collectable[] + tensors_between_looks)
    nothing
end

@noinline function look_at_memory()
    resident = resident_bytes()
    is_over = growth_limit[] != 0 && resident > growth_limit[]
    if is_over || growth_limit[] == 0 || resident + growth_between_collections < growth_limit[]
        growth_limit[] = resident + growth_between_collections
    end
    is_over && GC.gc()
    next_look[] = collectable[] + tensors_between_looks
    nothing
end

"The memory of the process, or 0 if the system does not tell."
function resident_bytes()
    try
        parse(Int, split(read("/proc/self/statm", String))[2]) * ccall(:getpagesize, Cint, ())
    catch
        0
    end
end
