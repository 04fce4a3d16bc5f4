@testset "$name is documented" for name in names(FSDP2)
    binding = Docs.Binding(FSDP2, name)
    known = [Docs.meta(m) for m in (FSDP2,)]
    @test any(haskey(meta, binding) for meta in known)
end
