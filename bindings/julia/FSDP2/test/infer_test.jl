"What a model gives to each next token, by its logits."
function next_tokens(model, tokens)
    logits = no_grad(() -> Array(model(tokens)))
    ids = Array(tokens)
    places = [(row, at) for row in 1:size(ids, 1), at in 1:size(ids, 2)-1]
    normalizer = [log(sum(exp.(logits[row, at, :]))) for (row, at) in places]
    mean = [sum(exp.(logits[row, at, :]) .* logits[row, at, :]) for (row, at) in places] ./ exp.(normalizer)
    [logits[row, at, 1 + ids[row, at + 1]] for (row, at) in places] - normalizer, normalizer - mean
end

const model = from_pretrained(llama)

@testset "scores are log-probabilities" begin
    tokens = batch(3)
    log_probs, entropies = next_tokens(model, tokens)
    for options in (NamedTuple(), (batch_size = 2, chunk_size = 4, reshard_after_forward = :never))
        scores = scope(() -> score(model, tokens; options...))
        @test size(scores.log_probs) == (3, sequence - 1) && !get_info(scores.log_probs).requires_grad
        @test Array(scores.log_probs) ≈ log_probs rtol = 1e-5
        @test Array(scores.entropies) ≈ entropies rtol = 1e-5
    end
    @test Array(score(model, tokens, Tensor(fill(-100, 3, sequence))).log_probs) == zeros(3, sequence)
    for wrong in ((temperature = 0,), (batch_size = -1,), (reshard_after_forward = 2,), (max_new_tokens = 3,))
        @test code_of(() -> score(model, tokens; wrong...)) == :invalid_argument
    end
    @test code_of(() -> score(create_layer("ReLU"), tokens)) == :unsupported
end

const prompts = [[97, 108, 108, 32], [120], [98, 121, 101]]
const stopping = (max_new_tokens = 8, top_p = 0.95, seed = 11, stop_tokens = 0:8:376)

@testset "generation stops at its tokens" begin
    rows = generate(model, prompts; stopping...)
    stopped = [row[end] % 8 == 0 for row in rows]
    @test length(rows) == 3 && any(stopped) && !all(stopped)
    for (i, row) in enumerate(rows)
        @test all(token -> token % 8 != 0, row[1:end-1]) && (stopped[i] || length(row) == 8)
        @test generate(model, prompts[i]; first_row = i - 1, stopping...) == row
    end
    @test generate(model, prompts[2:3]; first_row = 1, stopping...) == rows[2:3]
    @test generate(model, Vector{Int}[]) == []
    for wrong in ((max_new_tokens = -1,), (top_p = 2,), (stop_tokens = [384],), (first_row = -1,), (batch_size = 1,))
        @test code_of(() -> generate(model, prompts; wrong...)) == :invalid_argument
        @test code_of(() -> generate(model, prompts[1]; wrong...)) == :invalid_argument
    end
    @test code_of(() -> generate(model, [[1], Int[]])) == :invalid_argument
    seeing = (vision_inputs = [nothing, Tensor(zeros(Float32, 1))],)
    @test code_of(() -> generate(model, prompts; seeing...)) == :invalid_argument
    collect_all()
    before = FSDP2.live_handles()
    generate(model, prompts; stopping...)
    @test FSDP2.live_handles() == before
end
