using FSDP2
using Test

const data = get(ENV, "FSDP2_TEST_DATA", normpath(joinpath(@__DIR__, "../../../../tests/parity/golden")))
const llama = joinpath(data, "models/tiny-llama")
const tokens_file = joinpath(data, "tokens/tiny-llama.bin")

const sequence = 8
batch(rows = 2) = Tensor(Int64[(7i + 3j) % 384 for i in 1:rows, j in 1:sequence])

"What f throws."
thrown(f) =
    try
        f()
        nothing
    catch error
        error
    end

code_of(f) = thrown(f).code

const meetings = Ref(0)

"A mesh of this process alone."
one_rank(; options...) = Mesh(; rendezvous = "thread://one$(meetings[] += 1)", rank = 0, world_size = 1, options...)

"A run of tiny-llama on the ranks of a mesh."
function run_on(mesh; lr = 1e-2, options...)
    model = from_pretrained(llama)
    shard = Shard(model, mesh; options...)
    optimizer = adamw(shard; lr = lr)
    step = Step(shard, optimizer; schedule = :linear, total_steps = 10, max_grad_norm = 1.0)
    loader = Loader(mesh, tokens_file; sequence_length = sequence, global_batch = 4, vocab_size = 384)
    (model = model, shard = shard, optimizer = optimizer, step = step, loader = loader)
end

const golden_first_loss = 6.206598

"The loss of a first step, with every object made from a configuration, on the ranks of the environment."
function first_loss_of_config()
    config = lower_config("model: $llama\ntokens: $tokens_file\nepochs: 1\nthreads: 1\nkeep_memory: false\n")
    set_up_process(config)
    mesh = make_mesh(config, join_job(config))
    model = make_module(config)
    loader = make_loader(config, model, mesh)
    config = settle_epochs(config, get_info(loader).steps_per_epoch)
    shard = make_shard(config, model, mesh)
    load_values!(shard)
    step = make_step(config, shard, make_optimizer(config, shard))
    run!(step, next!(loader)...).loss
end

function collect_all()
    for _ in 1:3
        GC.gc()
    end
end

set_threads(1)
