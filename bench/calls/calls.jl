# What a call costs: calls.jl BATCHES. Prints for each call the ns of one in the fastest batch, of one with the destruction of its
# result, and the latter's mean over all batches.

using FSDP2, Printf

const calls_in_a_batch = 1000
const held_results = 50 # before they are destroyed

function measure(call, name, batches)
    fastest, fastest_of_both, all = Inf, Inf, 0.0
    held = Vector{Tensor}(undef, held_results)
    for _ in 1:batches
        calls, both = 0.0, 0.0
        for _ in 1:(calls_in_a_batch ÷ held_results)
            start = time_ns()
            for i in 1:held_results
                held[i] = call()
            end
            calls += Int(time_ns() - start) / calls_in_a_batch
            foreach(close, held)
            both += Int(time_ns() - start) / calls_in_a_batch
        end
        fastest = min(fastest, calls)
        fastest_of_both = min(fastest_of_both, both)
        all += both / batches
    end
    @printf("%s %.1f %.1f %.1f\n", name, fastest, fastest_of_both, all)
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
