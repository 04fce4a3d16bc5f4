# What models are used for without training them.

const infer_options = """
Options: `batch_size = 0` rows of one forward (0: all); `chunk_size = 0` tokens whose logits exist at a time (0: by the vocabulary);
`temperature = 1.0`, by which logits are divided; `reshard_after_forward`: `:auto`, `:always`, or `:never`, with which what is gathered
serves all forwards of the call."""

"""
    score(model::FSDP2.Module, inputs...; options...)

`(; log_probs, entropies)`: of each label its log-probability, and the entropy of the distribution in its place, both in nats and 0 for
labels of -100, without gradients and without ever holding all logits. The inputs are those of `forward`. Both tensors are `Float32`
`[batch, sequence]`; without labels, each token's label is the next token, and they are one shorter.

Collective if the module is sharded. Ranks may have batches of different sizes, or of no rows, if they pass the same options apart from
`batch_size`. Dropout is on in training mode; see `train!`.

$infer_options
"""
function score(model::Module, inputs::Input...; options...)
    handles, log_probs, entropies = raw_tensors(inputs), Ref(fsdp2_tensor()), Ref(fsdp2_tensor())
    GC.@preserve inputs with_options(fsdp2_infer_options, options) do given
        check(fsdp2_module_score(model, handles, length(handles), given, log_probs, entropies))
    end
    (log_probs = give(log_probs[]), entropies = give(entropies[]))
end

"""
    evaluate(model::FSDP2.Module, inputs...; options...)

`(; n_labels, loss)`: the mean cross-entropy of a batch over the labels of all ranks, which is NaN if none counts, and their number.
Otherwise as `score`. The mean of several batches is that of their losses weighted by `n_labels`.

$infer_options
"""
function evaluate(model::Module, inputs::Input...; options...)
    handles = raw_tensors(inputs)
    GC.@preserve inputs with_options(fsdp2_infer_options, options) do given
        named(output(out -> fsdp2_module_evaluate(model, handles, length(handles), given, out), fsdp2_evaluation))
    end
end

"""
    generate(model::FSDP2.Module, prompt; options...)
    generate(model::FSDP2.Module, prompts; options...)

Tokens that go on from the prompt, a vector of tokens; or, from a vector of prompts of any lengths, one such vector for each.

- `max_new_tokens = 64`; `stop_tokens = []`, each of which ends the row that it is generated in, as its last token.
- `temperature = 1.0`; 0: always the most likely token.
- `top_k = 0`: only the so many most likely tokens; `top_p = 0.0`: of these, the fewest that are as likely together; 0: all.
- `seed = 0`; `first_row = 0`: the number of this rank's first prompt among those of all ranks, from 0. A row goes on by the seed and its
  number, alike whatever rows are beside it and whichever rank has it, as far as rounding does not decide.
- `reshard_after_forward` as in `score`; each token takes a forward.
- `vision_inputs = []`: images and videos of the prompts, row by row: the inputs of `forward` from pixel_values on, `nothing` for one that
  is left out.

Collective if the module is sharded. Several prompts are those of this rank, which may have none (`Vector{Int}[]`); all ranks pass the
same options apart from `first_row`.
"""
function generate(model::Module, prompt::AbstractVector{<:Integer}; options...)
    with_options(fsdp2_generate_options, options) do given
        tokens, n = Vector{Int64}(undef, clamp(given[].max_new_tokens, 0, 1 << 24)), Ref{Csize_t}(0)
        from = collect(Int64, prompt)
        check(fsdp2_module_generate(model, from, length(from), given, tokens, length(tokens), n))
        resize!(tokens, n[])
    end
end

function generate(model::Module, prompts::AbstractVector{<:AbstractVector{<:Integer}}; options...)
    lengths = Int64[length(prompt) for prompt in prompts]
    padded = zeros(Int64, length(prompts), reduce(max, lengths; init = 1))
    for (i, prompt) in enumerate(prompts)
        padded[i, 1:lengths[i]] = prompt
    end
    scope() do
        tokens, counts = generate_rows(model, Tensor(padded), lengths, options)
        [tokens[i, 1:count] for (i, count) in enumerate(counts)]
    end
end

function generate_rows(model, prompts, lengths, options)
    tokens, counts = Ref(fsdp2_tensor()), Ref(fsdp2_tensor())
    with_options(fsdp2_generate_options, options) do given
        check(fsdp2_module_generate_batch(model, prompts, lengths, length(lengths), given, tokens, counts))
    end
    Array(give(tokens[])), Array(give(counts[]))
end
