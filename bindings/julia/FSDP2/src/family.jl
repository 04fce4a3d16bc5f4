"""
The handles that keep a module alive whose forwards are Julia functions: its own, those of its shard, optimizers and steps. In the library
the handle of a part keeps the whole alive, and here the function of the whole holds the handles of its parts: none would ever go.
So the parts are closed with the last handle of the family.
"""
mutable struct Family
    members::Threads.Atomic{Int}
    forward::Any
end
Family(forward) = Family(Threads.Atomic{Int}(1), forward)

family_of(handle::Handle) = hasfield(typeof(handle), :family) ? handle.family : nothing

"Counts a new handle in, which has its family already."
function join_family!(handle::Handle)
    family = family_of(handle)
    family === nothing || Threads.atomic_add!(family.members, 1)
    handle
end

join_family!(handle::Handle, family) = (handle.family = family; join_family!(handle))

function leave_family(handle::Handle)
    family = family_of(handle)
    if family !== nothing && Threads.atomic_sub!(family.members, 1) == 1
        close_parts(family.forward)
    end
end

function close_parts(forward)
    for child in forward.children
        child.forward === nothing || close_parts(child.forward)
        close_later(child)
    end
end
