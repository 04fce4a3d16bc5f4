const options_types = filter(name -> occursin(r"^fsdp2_\w+_options$", string(name)), names(FSDP2, all = true))

@testset "versions agree" begin
    @test FSDP2.fsdp2_version() == FSDP2.FSDP2_HEADER_VERSION
    @test FSDP2.version() == VersionNumber(FSDP2.FSDP2_HEADER_VERSION >> 16, FSDP2.FSDP2_HEADER_VERSION & 0xffff)
    @test occursin("libtorch", lowercase(describe_runtime()))
end

@testset "an error about the library says how to name it" begin
    for file in (@__FILE__, "/no/such/library.so", "libc.so.6")
        failure = withenv(() -> thrown(FSDP2.__init__), "FSDP2_LIBRARY" => file)
        @test startswith(failure.msg, file == "libc.so.6" ? "libc.so.6 is another library" : "cannot load $file")
        @test occursin("set FSDP2_LIBRARY", failure.msg)
    end
    for unset in (nothing, "")
        @test withenv(() -> basename(FSDP2.library_file()), "FSDP2_LIBRARY" => unset) == FSDP2.libfsdp2
    end
end

@testset "the matmul precision can be chosen" begin
    set_matmul_precision(:high_always)
    @test occursin("matmul_precision: high-always", describe_runtime())
    @test_throws FSDP2Error set_matmul_precision(:higher)
    set_matmul_precision(:highest)
    @test occursin("matmul_precision: highest", describe_runtime())
end

@testset "memory is kept on request" begin
    keep_memory(true)
    @test occursin("kept_memory: 0 bytes", describe_runtime())
    keep_memory(false)
    @test occursin("kept_memory: off", describe_runtime())
end

@testset "the engine of products is chosen" begin
    set_deterministic(true)
    set_product_engine(:onednn)
    @test occursin("oneDNN (set)", describe_runtime())
    set_product_engine(:auto)
    set_deterministic(false)
end

@testset "options default as the library's: $name" for name in options_types
    options = getfield(FSDP2, name)
    init = getfield(FSDP2, Symbol(name, "_init"))
    out = Ref(options())
    FSDP2.check(init(out, sizeof(options)))
    @test out[] === options()
    FSDP2.with_options(given -> (@test given[] === out[]), options, NamedTuple())
end

@testset "options" begin
    number(T; options...) = FSDP2.with_options(given -> given[], T, options)
    @test number(FSDP2.fsdp2_step_options; schedule = :cosine).schedule == FSDP2.FSDP2_SCHEDULE_COSINE
    @test number(FSDP2.fsdp2_shard_options; param_dtype = BF16, wrap_head = true, reshard_after_forward = 4).reshard_after_forward == 4
    @test number(FSDP2.fsdp2_mesh_options; shape = (2, -1), names = ["a", "b"]).n_dims == 2
    @test number(FSDP2.fsdp2_loader_options; format = :bytes).format == FSDP2.FSDP2_TOKENS_BYTES
    @test number(FSDP2.fsdp2_save_options; format = :pth, keep_last = nothing).format == FSDP2.FSDP2_CHECKPOINT_PTH
    for wrong in [(schedule = :sine,), (steps = 3,), (struct_size = 4,), (accumulate = "two",)]
        @test code_of(() -> number(FSDP2.fsdp2_step_options; wrong...)) == :invalid_argument
    end
    @test code_of(() -> number(FSDP2.fsdp2_mesh_options; shape = (2, 2), names = ["a"])) == :invalid_argument
    @test code_of(() -> number(FSDP2.fsdp2_shard_options; param_dtype = String)) == :invalid_argument
end

@testset "json" begin
    for value in Any[nothing, true, 3, -2.5, "a \"text\"\n\\é", Any[1, Any["x"]], Any[]]
        @test FSDP2.from_json(FSDP2.to_json(value)) == value
    end
    @test FSDP2.from_json(" {\"a\": [1, 2.5e3, {}], \"\\u00e9\\ud83d\\ude00\": null} ") ==
        Dict("a" => Any[1, 2500.0, Dict{String, Any}()], "é😀" => nothing)
    for wrong in ["", "{", "[1", "[1 2]", "tru", "\"a", "{1: 2}", "1 2"]
        @test code_of(() -> FSDP2.from_json(wrong)) == :corrupt_data
    end
    @test code_of(() -> FSDP2.to_json(Inf)) == :invalid_argument
    @test code_of(() -> FSDP2.to_json(Dict())) == :invalid_argument
end
