//! Forward-only work of language models: scores, losses and text.

use std::{iter, sync::Arc};

use crate::{ffi, sys, Module, Reshard, Result, Tensor};

options! {
    /// How the rows of a batch are scored.
    #[derive(Debug, Clone, PartialEq)]
    InferOptions: fsdp2_infer_options, fsdp2_infer_options_init {
        /// [`Reshard::Auto`]: as the units have it; [`Reshard::Always`]; or [`Reshard::Never`]: what is gathered serves all
        /// forwards of the call, which frees it at its end.
        reshard_after_forward: Reshard,
        /// Rows of one forward, of which the last may have fewer; 0: all.
        batch_size: i64,
        /// Tokens whose logits exist at a time; 0: by the vocabulary.
        chunk_size: i64,
        /// Above 0; logits are divided by it.
        temperature: f64,
    }
}

/// What a language model says of labels: `[B, S]` in f32, or `[B, S-1]` if each token's label is the next token. 0 for labels
/// of -100.
#[derive(Debug)]
#[non_exhaustive]
pub struct Scores {
    /// The log-probability of each label, in nats.
    pub log_probs: Tensor,
    /// The entropy of the distribution in its place, in nats.
    pub entropies: Tensor,
}

info! {
    /// The loss of a batch.
    Evaluation: fsdp2_evaluation {
        /// Labels that count, over all ranks.
        n_labels: i64,
        /// Their mean cross-entropy; NaN if there are none.
        loss: f64,
    }
}

options! {
    /// How text is made.
    #[derive(Debug, Clone, PartialEq)]
    GenerateOptions: fsdp2_generate_options, fsdp2_generate_options_init {
        /// How many tokens at most.
        max_new_tokens: i32,
        /// Among how many of the likeliest to choose; 0: all.
        top_k: i32,
        /// Among the fewest of those whose probabilities add up to it; 0: all.
        top_p: f64,
        /// 0: always the most likely token.
        temperature: f64,
        /// Seed of the choice.
        seed: u64,
        /// As in [`InferOptions`]; each token takes a forward.
        reshard_after_forward: Reshard,
        /// The number of this rank's first prompt among those of all ranks.
        first_row: i64,
    } others |_raw| {
        /// Each ends the text that it is generated in.
        stop_tokens: Vec<i64> = Vec::new(),
        /// Images and videos of this rank's prompts, row by row: the inputs of [`Module::forward`] from pixel_values on, `None`
        /// for one that is left out.
        vision_inputs: Vec<Option<Arc<Tensor>>> = Vec::new(),
    }
}

impl GenerateOptions {
    /// The struct that C takes, which borrows the stop tokens and the [`GenerateOptions::images`].
    fn raw_with<'a>(&'a self, images: &'a [sys::fsdp2_tensor]) -> sys::fsdp2_generate_options {
        sys::fsdp2_generate_options {
            stop_tokens: ffi::pointer(&self.stop_tokens),
            n_stop_tokens: self.stop_tokens.len(),
            vision_inputs: ffi::pointer(images),
            n_vision_inputs: images.len(),
            ..self.raw()
        }
    }

    fn images(&self) -> Vec<sys::fsdp2_tensor> {
        ffi::tensors(self.vision_inputs.iter().map(Option::as_deref))
    }
}

/// Ranks may have batches of different sizes, or of no rows: all make as many forwards as the rank with the most. Dropout is on
/// in training mode: see [`Module::train`].
impl Module {
    /// The log-probability of each label of a language model, without gradients and without ever holding all logits. The
    /// inputs are those of [`Module::forward`]; without labels, each token's label is the next token. *Collective*, if the
    /// module is sharded.
    ///
    /// ```no_run
    /// # fn main() -> fsdp2::Result<()> {
    /// # let module = fsdp2::Module::from_config("", &Default::default())?;
    /// # let tokens = fsdp2::Tensor::from_slice(&[1i64, 2], &[1, 2])?;
    /// let scores = module.score([&tokens], &Default::default())?;
    /// let log_probs: Vec<f32> = scores.log_probs.read()?;
    /// # Ok(()) }
    /// ```
    pub fn score<'a, I>(&self, inputs: I, options: &InferOptions) -> Result<Scores>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let inputs = ffi::tensors(inputs);
        let (log_probs, entropies) = pair(|log_probs, entropies| unsafe {
            sys::fsdp2_module_score(
                self.raw(),
                ffi::pointer(&inputs),
                inputs.len(),
                &options.raw(),
                log_probs,
                entropies,
            )
        })?;
        Ok(Scores {
            log_probs,
            entropies,
        })
    }

    /// The loss of a batch over the labels of all ranks; otherwise as [`Module::score`]. The mean of several batches is that of
    /// their losses weighted by `n_labels`. *Collective*, if the module is sharded.
    pub fn evaluate<'a, I>(&self, inputs: I, options: &InferOptions) -> Result<Evaluation>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let inputs = ffi::tensors(inputs);
        Evaluation::get(|out| unsafe {
            sys::fsdp2_module_evaluate(
                self.raw(),
                ffi::pointer(&inputs),
                inputs.len(),
                &options.raw(),
                out,
            )
        })
    }

    /// Lets a language model go on with a text, and returns the new tokens, a stop token included. Ranks that pass the same
    /// prompt get the same tokens; otherwise as [`Module::generate_batch`]. *Collective*, if the module is sharded.
    pub fn generate(&self, prompt: &[i64], options: &GenerateOptions) -> Result<Vec<i64>> {
        let mut tokens = vec![0; options.max_new_tokens.clamp(0, 1 << 24) as usize];
        let mut n = 0;
        let images = options.images();
        ffi::check(unsafe {
            sys::fsdp2_module_generate(
                self.raw(),
                ffi::pointer(prompt),
                prompt.len(),
                &options.raw_with(&images),
                tokens.as_mut_ptr(),
                tokens.len(),
                &mut n,
            )
        })?;
        tokens.truncate(n);
        Ok(tokens)
    }

    /// Lets a language model go on with several prompts at once, of any lengths above 0, and returns the new tokens of each. If
    /// `first_row` says where this rank's prompts begin, a prompt goes on alike whatever prompts are beside it and whichever
    /// rank has it, as far as rounding does not decide. *Collective*, if the module is sharded: ranks pass prompts of their
    /// own, or none.
    ///
    /// ```no_run
    /// # fn main() -> fsdp2::Result<()> {
    /// # let module = fsdp2::Module::from_config("", &Default::default())?;
    /// let options = fsdp2::GenerateOptions { top_p: 0.9, stop_tokens: vec![0], ..Default::default() };
    /// let texts: Vec<Vec<i64>> = module.generate_batch(&[vec![1, 2, 3], vec![4]], &options)?;
    /// # Ok(()) }
    /// ```
    pub fn generate_batch<P: AsRef<[i64]>>(
        &self,
        prompts: &[P],
        options: &GenerateOptions,
    ) -> Result<Vec<Vec<i64>>> {
        let lengths: Vec<i64> = prompts
            .iter()
            .map(|row| row.as_ref().len() as i64)
            .collect();
        let rows = padded(prompts)?;
        let images = options.images();
        let (tokens, counts) = pair(|tokens, counts| unsafe {
            sys::fsdp2_module_generate_batch(
                self.raw(),
                rows.raw(),
                ffi::pointer(&lengths),
                lengths.len(),
                &options.raw_with(&images),
                tokens,
                counts,
            )
        })?;
        let tokens: Vec<i64> = tokens.read()?;
        let counts: Vec<i64> = counts.read()?;
        let width = tokens.len() / counts.len().max(1);
        Ok(counts
            .iter()
            .enumerate()
            .map(|(row, &count)| tokens[row * width..][..count as usize].to_vec())
            .collect())
    }
}

/// `[B, S]`: what is behind the end of a row does not count.
fn padded<P: AsRef<[i64]>>(rows: &[P]) -> Result<Tensor> {
    let rows = || rows.iter().map(AsRef::as_ref);
    let longest = rows().map(<[i64]>::len).max().unwrap_or(0).max(1);
    let tokens: Vec<i64> = rows()
        .flat_map(|row| row.iter().copied().chain(iter::repeat(0)).take(longest))
        .collect();
    Tensor::from_slice(&tokens, &[rows().len() as i64, longest as i64])
}

/// The outputs of a call that makes two tensors.
fn pair(
    call: impl FnOnce(*mut sys::fsdp2_tensor, *mut sys::fsdp2_tensor) -> sys::fsdp2_status,
) -> Result<(Tensor, Tensor)> {
    let mut second = sys::fsdp2_tensor::default();
    let first = ffi::made(|first| call(first, &mut second))?;
    Ok((Tensor::given(first)?, Tensor::given(second)?))
}
