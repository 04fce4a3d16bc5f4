# runtests.jl [FILE...]: all files, or some, on one rank. ranks_test.jl is for two.
include("helpers.jl")

const files = [
    "raw", "handle", "tensor", "operator", "module", "layer", "infer", "function", "shard", "tokenizer", "train", "checkpoint", "config",
    "documentation"]
@testset "FSDP2" begin
    for file in (isempty(ARGS) ? files : ARGS)
        @testset "$file" begin
            include(file * "_test.jl")
        end
    end
end
