//! Batches of token windows for this rank, from a flat token file, from any text, or from records in JSON lines.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use crate::{ffi, sys, Mesh, Result, Tensor};

numbers! {
    /// What the bytes of a file are.
    TokenFormat {
        /// Little-endian u16 up to a vocabulary of 65536, u32 above.
        Auto = FSDP2_TOKENS_AUTO,
        /// Text: each byte is a token, or it has those of a tokenizer.
        Bytes = FSDP2_TOKENS_BYTES,
        /// Records in JSON lines, of which answers are labels; tokens as for texts.
        Records = FSDP2_TOKENS_RECORDS,
    }
}

numbers! {
    /// The order of windows.
    Order {
        /// In file order, wrapping around.
        Sequential = FSDP2_ORDER_SEQUENTIAL,
        /// A new permutation for each epoch, by seed.
        Shuffled = FSDP2_ORDER_SHUFFLED,
    }
}

options! {
    /// How a file is cut into batches.
    #[derive(Debug, Clone, PartialEq)]
    LoaderOptions: fsdp2_loader_options, fsdp2_loader_options_init {
        /// What the bytes of the file are.
        format: TokenFormat,
        /// The order of windows.
        order: Order,
        /// Micro batches per step.
        accumulate: i32,
        /// Tokens in a window.
        sequence_length: i64,
        /// Windows per step, over all ranks and micro batches.
        global_batch: i64,
        /// Every token must be below it.
        vocab_size: i64,
        /// Seed of the permutations.
        seed: u64,
        /// Whether the end of a record is left out that does not fit a window; otherwise it is an error.
        cut_long_records: bool,
        /// Whether lines are left out that are no record or have no answer; otherwise they are errors.
        skip_bad_records: bool,
        /// Whether a shuffled epoch leaves out the windows that do not fill a step; otherwise its first windows fill that step.
        drop_last: bool,
        /// Batches that a thread prepares while the caller computes.
        read_ahead: i32,
    } others |_raw| {
        /// A tokenizer.json, or a directory with one: the tokens of texts and records. `None`: bytes.
        tokenizer: Option<PathBuf> = None,
        /// The config.json of the model, or the directory with it: records may have images if it sees any.
        vision_model: Option<PathBuf> = None,
    }
}

impl LoaderOptions {
    /// Calls with the struct that C takes, which lives that long.
    fn with_raw<R>(&self, call: impl FnOnce(&sys::fsdp2_loader_options) -> Result<R>) -> Result<R> {
        let mut raw = self.raw();
        let tokenizer = self.tokenizer.as_deref().map(ffi::c_path).transpose()?;
        raw.tokenizer = tokenizer
            .as_ref()
            .map_or(std::ptr::null(), |path| path.as_ptr());
        let vision_model = self.vision_model.as_deref().map(ffi::c_path).transpose()?;
        raw.vision_model = vision_model
            .as_ref()
            .map_or(std::ptr::null(), |path| path.as_ptr());
        call(&raw)
    }
}

info! {
    /// How much there is to read.
    LoaderInfo: fsdp2_loader_info {
        /// Windows of all files, each counted once.
        n_windows: i64,
        /// Steps that they are enough for, rounded up; down with `drop_last`.
        steps_per_epoch: i64,
        /// Images in all windows.
        n_images: i64,
        /// Videos in all windows.
        n_videos: i64,
        /// Inputs of a forward that the videos of a batch are: 3 for `qwen2_5_vl`, 2 for `qwen3_vl`, 0 without videos.
        n_video_inputs: i64,
    }
}

object! {
    /// Batches of a file. It belongs to one thread at a time:
    ///
    /// ```compile_fail,E0277
    /// fn shared<T: Sync>() {}
    /// shared::<fsdp2::Loader>();
    /// ```
    Loader: fsdp2_loader, fsdp2_loader_destroy, fsdp2_loader_duplicate, Cell<()>
}

impl Loader {
    /// Opens a file of tokens. *Collective.*
    pub fn open(mesh: &Mesh, path: impl AsRef<Path>, options: &LoaderOptions) -> Result<Self> {
        let path = ffi::c_path(path.as_ref())?;
        options.with_raw(|raw| {
            ffi::made(|out| unsafe { sys::fsdp2_loader_open(mesh.raw(), path.as_ptr(), raw, out) })
                .map(Self::own)
        })
    }

    /// Opens several files of one format as one, by weights, of which only the proportions count. Each file has epochs of its own.
    /// *Collective.*
    pub fn open_mixture(
        mesh: &Mesh,
        files: &[(impl AsRef<Path>, f64)],
        options: &LoaderOptions,
    ) -> Result<Self> {
        let paths = ffi::Texts::of_paths(files.iter().map(|(path, _)| path.as_ref()))?;
        let weights: Vec<f64> = files.iter().map(|&(_, weight)| weight).collect();
        options.with_raw(|raw| {
            ffi::made(|out| unsafe {
                sys::fsdp2_loader_open_mixture(
                    mesh.raw(),
                    paths.as_ptr(),
                    ffi::pointer(&weights),
                    weights.len(),
                    raw,
                    out,
                )
            })
            .map(Self::own)
        })
    }

    /// How much there is to read.
    pub fn info(&self) -> Result<LoaderInfo> {
        LoaderInfo::get(|out| unsafe { sys::fsdp2_loader_get_info(self.raw(), out) })
    }

    /// The next micro batch of this rank: tokens and labels, both i64 `[global_batch / (ranks * accumulate), sequence_length]`.
    /// A loader never ends; it wraps around.
    pub fn next(&self) -> Result<[Tensor; 2]> {
        let mut labels = sys::fsdp2_tensor::default();
        let tokens =
            Tensor::made(|out| unsafe { sys::fsdp2_loader_next(self.raw(), out, &mut labels) })?;
        Ok([
            tokens,
            Tensor::made(|out| unsafe {
                *out = labels;
                sys::FSDP2_OK
            })?,
        ])
    }

    /// The positions of the tokens that the last [`Loader::next`] returned, for the module's forward after the labels: they
    /// begin anew in each record. Records need them.
    pub fn positions(&self) -> Result<Tensor> {
        Tensor::made(|out| unsafe { sys::fsdp2_loader_get_positions(self.raw(), out) })
    }

    /// Where the sequences of the last batch begin, for the module's forward as its mask. A model that sees images needs them
    /// in place of the positions.
    pub fn boundaries(&self) -> Result<Tensor> {
        Tensor::made(|out| unsafe { sys::fsdp2_loader_get_boundaries(self.raw(), out) })
    }

    /// The images of the last batch, if it has any: `pixel_values` and `image_grid_thw`, for the module's forward after the mask.
    pub fn images(&self) -> Result<Option<[Tensor; 2]>> {
        let mut grids = sys::fsdp2_tensor::default();
        let pixels =
            ffi::made(|out| unsafe { sys::fsdp2_loader_get_images(self.raw(), out, &mut grids) })?;
        match (Tensor::own(pixels), Tensor::own(grids)) {
            (Some(pixels), Some(grids)) => Ok(Some([pixels, grids])),
            _ => Ok(None),
        }
    }

    /// The videos of the last batch, if it has any: `pixel_values_videos`, `video_grid_thw` and, for models that take them,
    /// `second_per_grid_ts`, for the module's forward after the images.
    pub fn videos(&self) -> Result<Option<(Tensor, Tensor, Option<Tensor>)>> {
        let mut grids = sys::fsdp2_tensor::default();
        let mut seconds = sys::fsdp2_tensor::default();
        let pixels = ffi::made(|out| unsafe {
            sys::fsdp2_loader_get_videos(self.raw(), out, &mut grids, &mut seconds)
        })?;
        match (
            Tensor::own(pixels),
            Tensor::own(grids),
            Tensor::own(seconds),
        ) {
            (Some(pixels), Some(grids), seconds) => Ok(Some((pixels, grids, seconds))),
            _ => Ok(None),
        }
    }

    /// The number of steps taken from the loader so far.
    pub fn position(&self) -> Result<i64> {
        ffi::made(|out| unsafe { sys::fsdp2_loader_get_position(self.raw(), out) })
    }

    /// Says where to continue.
    pub fn set_position(&self, step: i64) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_loader_set_position(self.raw(), step) })
    }
}
