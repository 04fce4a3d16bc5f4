"""
    profile(f; trace_file = nothing)

Runs `f()` and records what it computes and waits for, by LibTorch's own profiler: operators, and the phases of units as ranges that are
named as in PyTorch, such as "FSDP::all_gather (model.layers.0)". `trace_file` gets all events in Chrome's trace format. If `f` throws,
the profile ends without a trace. A process takes one profile at a time. Returns what `f` returns; `describe_profile` has the table. The
task stays on its thread meanwhile.
"""
function profile(f; trace_file = nothing)
    task = current_task()
    was_sticky = task.sticky
    task.sticky = true
    try
        check(fsdp2_profile_start())
        try
            result = f()
            check(fsdp2_profile_stop(optional(trace_file)))
            result
        catch
            fsdp2_profile_stop(C_NULL) # f or the name of the file was no good
            rethrow()
        end
    finally
        task.sticky = was_sticky
    end
end

"""
    describe_profile()

The last profile as a table of operators and ranges, by their own time.
"""
describe_profile() = text(fsdp2_profile_describe)
