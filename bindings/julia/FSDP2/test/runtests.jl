using FSDP2
using FSDP2: FSDP2Error, check
using Test

const options_types = filter(name -> occursin(r"^fsdp2_\w+_options$", string(name)), names(FSDP2, all = true))

@testset "version is the header's" begin
    @test FSDP2.fsdp2_version() == FSDP2.FSDP2_HEADER_VERSION
end

@testset "a missing directory fills the record" begin
    out = Ref(FSDP2.fsdp2_module())
    error = try
        check(FSDP2.fsdp2_module_from_pretrained("/no/such/model", C_NULL, out))
    catch caught
        caught
    end
    @test error isa FSDP2Error
    @test error.status == FSDP2.FSDP2_E_NOT_FOUND
    @test error.func == "fsdp2_module_from_pretrained"
    @test occursin("/no/such/model", error.message)
    @test occursin("FSDP2_E_NOT_FOUND", sprint(showerror, error))
    @test out[] == FSDP2.fsdp2_module()
end

@testset "$name() has the library's defaults" for name in options_types
    options = getfield(FSDP2, name)
    init = getfield(FSDP2, Symbol(name, "_init"))
    out = Ref(options())
    check(init(out, sizeof(options)))
    @test out[] === options()
end
