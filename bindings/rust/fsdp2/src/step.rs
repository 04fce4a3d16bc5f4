//! One training step in one call: forward and backward of each micro batch, gradient norm, clipping, optimizer, schedule,
//! zero-grad.

use std::cell::Cell;

use crate::{ffi, sys, Optimizer, Result, Shard, Tensor};

numbers! {
    /// What becomes of the learning rate after the warm-up.
    Schedule {
        /// It stays.
        Constant = FSDP2_SCHEDULE_CONSTANT,
        /// It falls in a line.
        Linear = FSDP2_SCHEDULE_LINEAR,
        /// It falls as a cosine.
        Cosine = FSDP2_SCHEDULE_COSINE,
    }
}

numbers! {
    /// What becomes of a step whose loss or gradient norm is infinite or NaN.
    NotFinite {
        /// It fails on all ranks, with nothing updated, unless updates are made in backward.
        Error = FSDP2_NOT_FINITE_ERROR,
        /// It counts, with nothing updated.
        Skip = FSDP2_NOT_FINITE_SKIP,
        /// As if nothing were wrong.
        Apply = FSDP2_NOT_FINITE_APPLY,
    }
}

numbers! {
    /// What the loss of a step is the mean of.
    LossMean {
        /// The losses of the micro batches, however many labels they have.
        MicroBatches = FSDP2_LOSS_MEAN_MICRO_BATCHES,
        /// The labels that count, in all micro batches and ranks.
        Labels = FSDP2_LOSS_MEAN_LABELS,
    }
}

options! {
    /// How a step goes.
    #[derive(Debug, Clone, PartialEq)]
    StepOptions: fsdp2_step_options, fsdp2_step_options_init {
        /// Micro batches per step.
        accumulate: i32,
        /// Reduce gradients at the last micro batch only.
        accumulate_last: bool,
        /// Reduce the gradients of units with an embedding table or the head at the last micro batch only.
        vocabulary_last: bool,
        /// On GPUs: steps of one shape are replays of a CUDA graph. Excludes `update_in_backward`. Not yet run on a GPU.
        cuda_graph: bool,
        /// After the warm-up.
        schedule: Schedule,
        /// Steps in which the learning rate rises.
        warmup_steps: i64,
        /// Length of the schedule, warm-up included.
        total_steps: i64,
        /// Final learning rate, as a fraction of the optimizer's.
        min_lr_ratio: f64,
        /// 0: no clipping.
        max_grad_norm: f64,
        /// What the loss is multiplied by at first, for gradients in fp16; 0: no scaling.
        loss_scale: f64,
        /// Steps in a row without overflow that double the scale.
        loss_scale_interval: i64,
        /// What becomes of a step that is not finite.
        not_finite: NotFinite,
        /// One more skipped step is an error; 0: no limit.
        max_skips_in_row: i32,
        /// What the loss is the mean of.
        loss_mean: LossMean,
        /// How many labels of a language model have logits at a time; 1024 is usual, and fewer need less memory and more time.
        /// 0: by the vocabulary.
        loss_chunk: i32,
        /// Where the warm-up begins, as a fraction of the optimizer's learning rate.
        start_lr_ratio: f64,
        /// Steps after which a linear or cosine schedule is at its final learning rate; 0: `total_steps`.
        decay_steps: i64,
        /// Update each unit as soon as its gradients are reduced, and free them: the same results in less memory. It excludes
        /// what needs all gradients first, and an error amid the updates asks for a checkpoint (`fsdp2_step_options` in step.h).
        update_in_backward: bool,
    }
}

info! {
    /// What a step did.
    StepResult: fsdp2_step_result {
        /// False: skipped, and nothing was updated.
        applied: bool,
        /// Counts from 0.
        step: i64,
        /// Over all ranks.
        n_tokens: i64,
        /// Before the update.
        loss: f64,
        /// L2, before clipping, without the loss scale.
        grad_norm: f64,
        /// The learning rate.
        lr: f64,
        /// How long it took.
        seconds: f64,
        /// Over all ranks.
        tokens_per_second: f64,
        /// The most bytes of gathered parameters on this rank so far.
        peak_unsharded_bytes: i64,
        /// In this step; 1: none.
        loss_scale: f64,
        /// False: the loss or the gradient norm is infinite or NaN.
        finite: bool,
        /// Steps not applied up to this one.
        skips_in_row: i32,
        /// That count, over all ranks; 0 for a module that does not count labels.
        n_labels: i64,
        /// The one mean, whichever the loss is.
        mean_over_micro_batches: f64,
        /// The other mean.
        mean_over_labels: f64,
    }
}

object! {
    /// Trains a shard. It belongs to one thread at a time, together with its shard:
    ///
    /// ```compile_fail,E0277
    /// fn shared<T: Sync>() {}
    /// shared::<fsdp2::Step>();
    /// ```
    Step: fsdp2_step, fsdp2_step_destroy, fsdp2_step_duplicate, Cell<()>
}

impl Step {
    /// The optimizer must belong to the shard; its learning rate is the schedule's peak. *Collective.* Options that the module, the
    /// optimizer or the machine cannot have are unsupported; `fsdp2_step_create` in step.h lists them.
    pub fn create(shard: &Shard, optimizer: &Optimizer, options: &StepOptions) -> Result<Self> {
        ffi::made(|out| unsafe {
            sys::fsdp2_step_create(shard.raw(), optimizer.raw(), &options.raw(), out)
        })
        .map(Self::own)
    }

    /// Runs a step on the inputs of each micro batch in turn: tensors, or `Option`s of them where some are left out. The model's
    /// first output must be its loss. *Collective.*
    pub fn run<'a, I>(&self, batch: I) -> Result<StepResult>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let batch = ffi::tensors(batch);
        StepResult::get(|out| unsafe {
            sys::fsdp2_step_run(self.raw(), ffi::pointer(&batch), batch.len(), out)
        })
    }

    /// Says where to continue, after a resume.
    pub fn set_position(&self, next_step: i64) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_step_set_position(self.raw(), next_step) })
    }

    /// The number of the next step.
    pub fn position(&self) -> Result<i64> {
        ffi::made(|out| unsafe { sys::fsdp2_step_get_position(self.raw(), out) })
    }
}
