# Text to tokens, and files of it to batches, on one rank.

@testset "text becomes tokens and comes back" begin
    bytes = Tokenizer()
    @test get_info(bytes) == (has_chat_template = false, vocab_size = 256, end_token = 0)
    tokens = encode(duplicate(bytes), "a\u00e9")
    @test tokens == [0x61, 0xc3, 0xa9]
    @test decode(bytes, tokens) == "a\u00e9"
    @test encode_record(bytes, "{\"text\": \"b\"}") == [0x62, 0]
    @test code_of(() -> encode_record(bytes, "{")) == :corrupt_data
    prompt = encode_prompt(bytes, "{\"prompt\": \"b\", \"response\": \"c\"}")
    @test prompt.tokens == [0x62] && isempty(prompt.vision_inputs)
    @test code_of(() -> encode_prompt(bytes, "{\"messages\": []}")) == :corrupt_data
    @test code_of(() -> Tokenizer("/no/such/tokenizer.json")) == :not_found
end

@testset "a mixture takes windows by weight" begin
    mktempdir() do directory
        first, second = joinpath(directory, "first"), joinpath(directory, "second")
        write(first, "aabbccd")
        write(second, "xxyyz")
        mesh = Mesh()
        options = (format = :bytes, sequence_length = 2, global_batch = 4, vocab_size = 256, read_ahead = 2)
        loader = open_mixture(mesh, [first, second], [3, 1]; options...)
        @test get_info(loader) == (n_windows = 5, steps_per_epoch = 2, n_images = 0, n_videos = 0, n_video_inputs = 0)
        tokens, _ = next!(loader)
        @test Char.(Array(tokens)[:, 1]) == ['a', 'b', 'x', 'c']
        @test code_of(() -> open_mixture(mesh, [first], [0]; options...)) == :invalid_argument
    end
end
