@handle Tokenizer "tokenizer"

"""
    Tokenizer(path)
    Tokenizer()

Text to tokens and back: by a tokenizer.json, or that of a directory, which takes libfsdp2_tokenizers.so; or by bytes, of which 0 ends a
text. A tokenizer never changes: tasks may share it.
"""
Tokenizer(path::AbstractString) = make(out -> fsdp2_tokenizer_open(path, out), Tokenizer)
Tokenizer() = make(out -> fsdp2_tokenizer_open(C_NULL, out), Tokenizer)

"""
    get_info(tokenizer::Tokenizer)

`(; has_chat_template, vocab_size, end_token)`: `end_token` is -1 if no file beside the tokenizer names one.
"""
get_info(tokenizer::Tokenizer) = named(output(out -> fsdp2_tokenizer_get_info(tokenizer, out), fsdp2_tokenizer_info))

"""
    encode(tokenizer::Tokenizer, text; surround = true)

The tokens of a text; with `surround` also those that the tokenizer puts around one, such as a beginning.
"""
encode(tokenizer::Tokenizer, text; surround = true) = list(Int64) do tokens, cap, needed
    fsdp2_tokenizer_encode(tokenizer, string(text), surround, tokens, cap, needed)
end

"""
    encode_record(tokenizer::Tokenizer, line)

The tokens of a line of JSON, as a loader takes it for a record.
"""
encode_record(tokenizer::Tokenizer, line) = list(Int64) do tokens, cap, needed
    fsdp2_tokenizer_encode_record(tokenizer, string(line), tokens, cap, needed)
end

"""
    encode_prompt(tokenizer::Tokenizer, line; vision_model = nothing, directory = nothing) -> (; tokens, vision_inputs)

The prompt of a record that is to be answered: what comes before its response, or before its last message where that is the assistant's; a
text is a prompt as a whole. Messages become what the chat template makes of them where it opens an answer. `vision_model`: the config.json
of a model that sees images, or the directory with it, if the record may have some; relative names of files count from `directory`.
`vision_inputs` are its images and videos, as `generate` takes them; none where it has none.
"""
function encode_prompt(tokenizer::Tokenizer, line; vision_model = nothing, directory = nothing)
    given(path) = path === nothing ? C_NULL : string(path)
    prompt, seen = Ref(fsdp2_tensor()), [Ref(fsdp2_tensor()) for _ in 1:5]
    check(fsdp2_tokenizer_encode_prompt(tokenizer, string(line), given(vision_model), given(directory), prompt, seen...))
    last = something(findlast(each -> each[].id != 0, seen), 0)  # a model may take fewer
    inputs = Union{Tensor, Nothing}[each[].id == 0 ? nothing : give(each[]) for each in seen[1:last]]
    tokens = give(prompt[])
    (; tokens = vec(Array(tokens)), vision_inputs = inputs)
end

"""
    decode(tokenizer::Tokenizer, tokens; keep_special = false)

The text of tokens; with `keep_special` also of special ones, such as the end of a text.
"""
function decode(tokenizer::Tokenizer, tokens; keep_special = false)
    from = collect(Int64, tokens)
    text((buf, cap, needed) -> fsdp2_tokenizer_decode(tokenizer, from, length(from), keep_special, buf, cap, needed))
end
