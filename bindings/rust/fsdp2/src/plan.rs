//! Plans: what a sharded model holds and moves in one training step, worked out without running it. With a mesh of
//! [`Backend::Fake`](crate::Backend::Fake) and `defer_values`, a plan takes one process and no memory for parameters.

use crate::{ffi, sys, Result, Shard, Tensor};

options! {
    /// What a plan cannot know from the shard.
    #[derive(Debug, Clone, PartialEq)]
    PlanOptions: fsdp2_plan_options, fsdp2_plan_options_init {
        /// Elements kept for each trainable element: 2 for AdamW, 1 for SGD with momentum, 0 without.
        optimizer_states: f64,
        /// Rows of the micro batch, for what ranks that share sequences exchange; 0: nothing is counted.
        rows: i64,
        /// Tokens of each of these rows.
        sequence_length: i64,
        /// [`OptimizerInfo::n_full_bytes`](crate::OptimizerInfo), in place of `optimizer_states`; 0: those count.
        optimizer_bytes: i64,
    }
}

info! {
    /// One step of one micro batch. Bytes are those on this rank; activations and communication buffers come on top of them.
    PlanInfo: fsdp2_plan_info {
        /// The number of units.
        n_units: i32,
        /// Elements of the sharded parameters, ties counted once.
        numel: i64,
        /// Bytes of this rank's parts.
        shard_bytes: i64,
        /// Bytes of their gradients.
        gradient_bytes: i64,
        /// Bytes of the optimizer's state.
        optimizer_bytes: i64,
        /// Bytes of gathered parameters, at most.
        peak_unsharded_bytes: i64,
        /// Bytes of gradients before they are reduced, at most.
        peak_unreduced_gradient_bytes: i64,
        /// How often a unit is gathered.
        all_gathers: i64,
        /// How often a unit's gradients are reduced and scattered.
        reduce_scatters: i64,
        /// How often a unit's gradients are reduced over the replicas.
        all_reduces: i64,
        /// Received by this rank.
        all_gather_bytes: i64,
        /// Received by this rank.
        reduce_scatter_bytes: i64,
        /// Received by this rank.
        all_reduce_bytes: i64,
        /// Calls of attention, where ranks share sequences.
        all_to_alls: i64,
        /// Received by this rank in these.
        all_to_all_bytes: i64,
    }
}

info! {
    /// Bytes on this rank at the moment of a step when they are most.
    PlanMemory: fsdp2_plan_memory {
        /// The following three together.
        peak_bytes: i64,
        /// Shards, gathered parameters, gradients and buffers.
        model_bytes: i64,
        /// What forward keeps for backward, what is being computed, and communication buffers.
        activation_bytes: i64,
        /// Bytes of the optimizer's state.
        optimizer_bytes: i64,
    }
}

info! {
    /// What [`Shard::plan_choose_reshard`] has chosen.
    PlanReshard: fsdp2_plan_reshard {
        /// Units, without the root, whose parameters come from other ranks.
        n_candidates: i32,
        /// The units among these that stay gathered after forward.
        n_kept: i32,
        /// The peak of a step then, as in [`PlanMemory`].
        peak_bytes: i64,
        /// The peak of a step in which none stays gathered.
        resharded_peak_bytes: i64,
    }
}

impl Shard {
    /// Plans a step that begins with everything sharded, by the present settings.
    pub fn plan_info(&self, options: &PlanOptions) -> Result<PlanInfo> {
        PlanInfo::get(|out| unsafe { sys::fsdp2_plan_get_info(self.raw(), &options.raw(), out) })
    }

    /// Finds the memory of a step by taking it without values: the forward and the backward of a module whose output is its
    /// loss, for each of `micro_batches` with these inputs, of which only the shapes and dtypes count. The shard is over a
    /// mesh of [`Backend::Fake`](crate::Backend::Fake) and `device_type` "meta", and made with `defer_values`.
    pub fn plan_memory<'a, I>(
        &self,
        inputs: I,
        micro_batches: usize,
        options: &PlanOptions,
    ) -> Result<PlanMemory>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let inputs = ffi::tensors(inputs);
        PlanMemory::get(|out| unsafe {
            let (first, count) = (ffi::pointer(&inputs), inputs.len());
            sys::fsdp2_plan_get_memory(self.raw(), first, count, micro_batches, &options.raw(), out)
        })
    }

    /// Sets `reshard_after_forward` of all units but the root: off for as many as a step of [`Shard::plan_memory`] stays within
    /// `budget_bytes` with, and on for the rest. [`Shard::unit_settings`] tells them, and [`Shard::set_reshard_after_forward`]
    /// does the same to the shard that is to take the step. The mesh is that of rank 0, so that all ranks choose alike.
    /// `Status::OutOfMemory`, with nothing set, if a step is beyond the budget whichever units stay gathered.
    pub fn plan_choose_reshard<'a, I>(
        &self,
        inputs: I,
        micro_batches: usize,
        options: &PlanOptions,
        budget_bytes: i64,
    ) -> Result<PlanReshard>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let inputs = ffi::tensors(inputs);
        let (first, count, raw) = (ffi::pointer(&inputs), inputs.len(), options.raw());
        PlanReshard::get(|out| unsafe {
            let shard = self.raw();
            sys::fsdp2_plan_choose_reshard(
                shard,
                first,
                count,
                micro_batches,
                &raw,
                budget_bytes,
                out,
            )
        })
    }

    /// The plan of [`Shard::plan_info`] as text: units, memory, traffic, and the order of gathers and reductions.
    pub fn plan_describe(&self, options: &PlanOptions) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_plan_describe(self.raw(), &options.raw(), buffer, cap, needed)
        })
    }
}
