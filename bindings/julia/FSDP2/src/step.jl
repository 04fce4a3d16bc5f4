@handle Step "step"

"""
    Step(shard::Shard, optimizer::Optimizer; options...)

A training step in one call, `run!`: forward and backward of each micro batch, gradient norm, clipping, optimizer, schedule. Collective.

- `accumulate = 1` micro batches per step; `accumulate_last`: reduce gradients at the last one only; `vocabulary_last`: those of
  units with an embedding table or the head.
- `cuda_graph`: on GPUs, steps of one shape are replays of a CUDA graph. It excludes `update_in_backward`. Not yet run on a GPU.
- `schedule`: `:constant`, `:linear`, `:cosine`, with `warmup_steps`, `total_steps`, `min_lr_ratio`; the optimizer's learning rate is its peak.
  `start_lr_ratio = 0.0` of it is where the warm-up begins, and `decay_steps = 0` (all) are those after which the decay is over.
- `max_grad_norm = 0.0`: no clipping; `loss_scale = 0.0`: none, `loss_scale_interval = 2000`.
- `not_finite`: `:error`, `:skip`, `:apply`; `max_skips_in_row = 100`.
- `loss_mean`: `:micro_batches`, `:labels`.
- `loss_chunk = 0`: how many labels of a language model have their logits at a time. 1024 is usual; fewer need less memory and more time;
  0: by the vocabulary.
- `update_in_backward = false`: update each unit as soon as its gradients are reduced, and free them: the same results in less memory. It
  excludes what needs all gradients first, and an error amid the updates asks for a checkpoint (`fsdp2_step_options` in step.h).
"""
Step(shard::Shard, optimizer::Optimizer; options...) =
    make_with(Step, fsdp2_step_options, options) do given, out
        fsdp2_step_create(shard, optimizer, given, out)
    end
Step(f::Function, shard::Shard, optimizer::Optimizer; options...) = closing(f, Step(shard, optimizer; options...))

"""
    run!(step::Step, batch...)

Runs one step on the inputs of each micro batch in turn: tokens and labels, for a language model. Collective. Returns `(; applied, step,
n_tokens, loss, grad_norm, lr, seconds, tokens_per_second, peak_unsharded_bytes, loss_scale, finite, skips_in_row, n_labels,
mean_over_micro_batches, mean_over_labels)`; `step` counts from 0.
"""
function run!(step::Step, batch::Input...)
    handles = raw_tensors(batch)
    GC.@preserve batch named(output(out -> fsdp2_step_run(step, handles, length(handles), out), fsdp2_step_result))
end

get_position(step::Step) = output(out -> fsdp2_step_get_position(step, out), Int64)
set_position!(step::Step, next_step::Integer) = check(fsdp2_step_set_position(step, next_step))
