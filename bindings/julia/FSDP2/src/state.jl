@handle State "state"

"""
    State(mesh::Mesh)

Named tensors, of which each rank holds chunks, and small values, to be saved, loaded and gathered. All ranks add the same names in
the same order. The state shares memory with the tensors that are added.
"""
State(mesh::Mesh) = make(out -> fsdp2_state_create(mesh, out), State)
State(f::Function, mesh::Mesh) = closing(f, State(mesh))

"""
    add_tensor!(state::State, name, chunk::Tensor; shape = nothing, offsets = nothing)

Adds the chunk at `offsets`, which count from 0, of a tensor of the global shape. Without them every rank holds the whole.
"""
function add_tensor!(state::State, name, chunk::Tensor; shape = nothing, offsets = nothing)
    n = ndims(chunk)
    all(given -> given === nothing || length(given) == n, (shape, offsets)) ||
        refuse(FSDP2_E_INVALID_ARGUMENT, "shape and offsets: expected $n numbers each, as the chunk has dims")
    sizes(given) = given === nothing ? C_NULL : collect(Int64, given)
    check(fsdp2_state_add_tensor(state, string(name), sizes(shape), sizes(offsets), n, chunk))
end

"""
    add_value!(state::State, name, value)

Adds `nothing`, a flag, a number, a text, or a vector of these; the same on all ranks.
"""
add_value!(state::State, name, value) = check(fsdp2_state_add_value(state, string(name), to_json(value)))

"""
    get_info(state::State)

`(; n_tensors, n_values, n_bytes)`.
"""
get_info(state::State) = named(output(out -> fsdp2_state_get_info(state, out), fsdp2_state_info))

"""
    get_names(state::State)

The names: first the tensors, one for each chunk, then the values.
"""
get_names(state::State) =
    map(1:count_of(out -> fsdp2_state_get_count(state, out))) do i
        text((buf, cap, needed) -> fsdp2_state_get_name(state, i - 1, buf, cap, needed))
    end

"""
    get_tensor(state::State, name)

This rank's (first) chunk, sharing its memory.
"""
get_tensor(state::State, name) = output_tensor(out -> fsdp2_state_get_tensor(state, string(name), out))

"""
    get_value(state::State, name)

A value that was added or loaded.
"""
get_value(state::State, name) = from_json(text((buf, cap, needed) -> fsdp2_state_get_value(state, string(name), buf, cap, needed)))

"""
    save(state::State, path; options...)

Writes a directory in PyTorch's DCP format. Collective. Options: `safetensors`, `threads = 1`, `file_per_tensor`, `no_overwrite`.
"""
save(state::State, path; options...) =
    with_options(given -> check(fsdp2_state_save(state, string(path), given)), fsdp2_state_save_options, options)

"""
    load!(state::State, path)

Overwrites the state's tensors and values from a checkpoint of any format. Collective.
"""
load!(state::State, path) = check(fsdp2_state_load(state, string(path)))

"""
    gather(state::State; rank0_only = false)

A state of whole tensors, copied to the CPU: on every rank, or on rank 0, while the others get empty ones. Collective.
"""
gather(state::State; rank0_only::Bool = false) = make(out -> fsdp2_state_gather(state, rank0_only, out), State)
