@handle Loader "loader"

"""
    Loader(mesh::Mesh, path; sequence_length, global_batch, vocab_size, options...)

Batches of token windows for this rank, from a flat file of tokens, any text, or records in JSON lines. Collective. `global_batch`:
windows per step, over all ranks and micro batches. Options: `accumulate = 1` micro batches per step; `format`: `:auto` (little-endian
`UInt16`, or `UInt32` for a vocabulary above 65536), `:bytes`, `:records`; `order`: `:sequential`, `:shuffled` by `seed`. In records, answers
are labels; `cut_long_records` leaves out the end of those that do not fit a window, `skip_bad_records` lines that are no record or have no
answer. `tokenizer`: a tokenizer.json, or a directory with one, in place of bytes. `drop_last` leaves out the windows of a shuffled epoch
that do not fill a step; a thread prepares `read_ahead` batches while the caller computes. `vision_model`: the config.json of the model, or the
directory with it; records may then have images, if the model sees any.

    for (tokens, labels) in Iterators.take(loader, 5)

A loader never ends: it begins again. Both tensors are `Int64` `[global_batch / (ranks * accumulate), sequence_length]`.
"""
Loader(mesh::Mesh, path; options...) =
    make_with(Loader, fsdp2_loader_options, options) do given, out
        fsdp2_loader_open(mesh, string(path), given, out)
    end
Loader(f::Function, mesh::Mesh, path; options...) = closing(f, Loader(mesh, path; options...))

"""
    open_mixture(mesh::Mesh, paths, weights; options...)

A [`Loader`](@ref) of several files of one format, by weights, of which only the proportions count. Each file has epochs of its own.
Collective.
"""
function open_mixture(mesh::Mesh, paths, weights; options...)
    length(paths) == length(weights) ||
        refuse(FSDP2_E_INVALID_ARGUMENT, "weights: expected $(length(paths)), one for each path, found $(length(weights))")
    numbers = collect(Float64, weights)
    with_strings(paths) do strings, n
        make_with(Loader, fsdp2_loader_options, options) do given, out
            fsdp2_loader_open_mixture(mesh, strings, numbers, n, given, out)
        end
    end
end

"""
    get_info(loader::Loader)

`(; n_windows, steps_per_epoch, n_images, n_videos, n_video_inputs)`: windows of all files, each counted once, the steps that they are enough
for, their images and videos, and the inputs that the videos of a batch are: 3 for `qwen2_5_vl`, 2 for `qwen3_vl`, 0 without videos.
"""
get_info(loader::Loader) = named(output(out -> fsdp2_loader_get_info(loader, out), fsdp2_loader_info))

"""
    next!(loader::Loader) -> (tokens, labels)

The next micro batch of this rank.
"""
function next!(loader::Loader)
    tokens, labels = Ref(fsdp2_tensor()), Ref(fsdp2_tensor())
    check(fsdp2_loader_next(loader, tokens, labels))
    give(tokens[]), give(labels[])
end

"""
    get_positions(loader::Loader)

The positions of the tokens that the last [`next!`](@ref) returned, for the module after the labels: they begin anew in each record. Records
need them.
"""
get_positions(loader::Loader) = output_tensor(out -> fsdp2_loader_get_positions(loader, out))

"""
    get_boundaries(loader::Loader)

Where the sequences of the last batch begin, for the module as its mask. A model that sees images needs them in place of the positions.
"""
get_boundaries(loader::Loader) = output_tensor(out -> fsdp2_loader_get_boundaries(loader, out))

"""
    get_images(loader::Loader) -> (pixel_values, image_grid_thw)

The images of the last batch, for the module after the mask; `(nothing, nothing)` where it has none.
"""
function get_images(loader::Loader)
    pixels, grids = Ref(fsdp2_tensor()), Ref(fsdp2_tensor())
    check(fsdp2_loader_get_images(loader, pixels, grids))
    pixels[].id == 0 ? (nothing, nothing) : (give(pixels[]), give(grids[]))
end

"""
    get_videos(loader::Loader) -> (pixel_values_videos, video_grid_thw, second_per_grid_ts)

The videos of the last batch, for the module after the images; `nothing` three times where it has none, and for the seconds where the model
takes none.
"""
function get_videos(loader::Loader)
    pixels, grids, seconds = Ref(fsdp2_tensor()), Ref(fsdp2_tensor()), Ref(fsdp2_tensor())
    check(fsdp2_loader_get_videos(loader, pixels, grids, seconds))
    pixels[].id == 0 && return (nothing, nothing, nothing)
    give(pixels[]), give(grids[]), seconds[].id == 0 ? nothing : give(seconds[])
end

Base.iterate(loader::Loader, _ = nothing) = (next!(loader), nothing)
Base.IteratorSize(::Type{Loader}) = Base.IsInfinite()
Base.eltype(::Type{Loader}) = Tuple{Tensor, Tensor}

"""
    get_position(loader::Loader)
    get_position(step::Step)

The number of steps taken so far, at which the next one counts.
"""
get_position(loader::Loader) = output(out -> fsdp2_loader_get_position(loader, out), Int64)

"""
    set_position!(loader::Loader, step)
    set_position!(step::Step, next_step)

Says where to continue.
"""
set_position!(loader::Loader, step::Integer) = check(fsdp2_loader_set_position(loader, step))
