# What a call costs: calls.jl BATCHES. Prints for each call the ns of the fastest batch, and of all.

using FSDP2, Printf

const calls_in_a_batch = 1000

function measure(call, name, batches)
    fastest, all = Inf, 0.0
    for _ in 1:batches
        start = time_ns()
        for _ in 1:calls_in_a_batch
            close(call())
        end
        taken = Int(time_ns() - start) / calls_in_a_batch
        fastest = min(fastest, taken)
        all += taken / batches
    end
    @printf("%s %.1f %.1f\n", name, fastest, all)
end

function main(batches)
    elements = Float32[1, 2, 3, 4]
    x = Tensor(elements)
    same = custom_module((ps, input) -> input, "Same")
    measure(() -> Tensor(elements), "tensor", batches)
    measure(() -> x + x, "operator", batches)
    measure(() -> same(x), "forward", batches)
    close(same)
    close(x)
end

main(isempty(ARGS) ? 100 : parse(Int, ARGS[1]))
