//! Plans: what a sharded model holds and moves in one training step, worked out without running it. With a mesh of
//! [`Backend::Fake`](crate::Backend::Fake) and `defer_values`, a plan takes one process and no memory for parameters.

use crate::{ffi, sys, Result, Shard};

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

impl Shard {
    /// Plans a step that begins with everything sharded, by the present settings.
    pub fn plan_info(&self, options: &PlanOptions) -> Result<PlanInfo> {
        PlanInfo::get(|out| unsafe { sys::fsdp2_plan_get_info(self.raw(), &options.raw(), out) })
    }

    /// The same as text: units, memory, traffic, and the order of gathers and reductions.
    pub fn plan_describe(&self, options: &PlanOptions) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_plan_describe(self.raw(), &options.raw(), buffer, cap, needed)
        })
    }
}
