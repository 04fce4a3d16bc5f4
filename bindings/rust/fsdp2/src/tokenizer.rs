//! Text to tokens and back.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use crate::{ffi, sys, Result, Tensor};

info! {
    /// What a tokenizer is.
    TokenizerInfo: fsdp2_tokenizer_info {
        /// Whether the files beside it have a chat template, which records of messages take.
        has_chat_template: bool,
        /// One more than its largest token.
        vocab_size: i64,
        /// The token that ends a text; -1: no file beside it names one.
        end_token: i64,
    }
}

/// What a model is given to answer a record; see [`Tokenizer::encode_prompt`].
#[derive(Debug)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: Vec<i64>,
    /// Its images and videos, as [`GenerateOptions`](crate::GenerateOptions) takes them; empty where it has none.
    pub vision_inputs: Vec<Option<Arc<Tensor>>>,
}

object! {
    /// A tokenizer, by Hugging Face's library or by bytes. It never changes: threads may share it.
    Tokenizer: fsdp2_tokenizer, fsdp2_tokenizer_destroy, fsdp2_tokenizer_duplicate, ()
}

impl Tokenizer {
    /// Opens a tokenizer.json, or that of a directory. It takes libfsdp2_tokenizers.so.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        ffi::ready()?;
        let path = ffi::c_path(path.as_ref())?;
        ffi::made(|out| unsafe { sys::fsdp2_tokenizer_open(path.as_ptr(), out) }).map(Self::own)
    }

    /// The tokenizer whose tokens are bytes, and 0 ends a text.
    pub fn bytes() -> Result<Self> {
        ffi::ready()?;
        ffi::made(|out| unsafe { sys::fsdp2_tokenizer_open(std::ptr::null(), out) }).map(Self::own)
    }

    /// What it is.
    pub fn info(&self) -> Result<TokenizerInfo> {
        TokenizerInfo::get(|out| unsafe { sys::fsdp2_tokenizer_get_info(self.raw(), out) })
    }

    /// The tokens of a text; with `surround` also those that the tokenizer puts around one, such as a beginning.
    pub fn encode(&self, text: &str, surround: bool) -> Result<Vec<i64>> {
        let text = ffi::c_text(text)?;
        ffi::list(|tokens, cap, needed| unsafe {
            let surround = i32::from(surround);
            sys::fsdp2_tokenizer_encode(self.raw(), text.as_ptr(), surround, tokens, cap, needed)
        })
    }

    /// The tokens of a line of JSON, as a loader takes it for a record.
    pub fn encode_record(&self, line: &str) -> Result<Vec<i64>> {
        let line = ffi::c_text(line)?;
        ffi::list(|tokens, cap, needed| unsafe {
            sys::fsdp2_tokenizer_encode_record(self.raw(), line.as_ptr(), tokens, cap, needed)
        })
    }

    /// The prompt of a record that is to be answered: what comes before its response, or before its last message where that is
    /// the assistant's; a text is a prompt as a whole. Messages become what the chat template makes of them where it opens an
    /// answer. `vision_model`: the config.json of a model that sees images, or the directory with it, if the record may have
    /// some; relative names of files count from `directory`.
    pub fn encode_prompt(
        &self,
        line: &str,
        vision_model: Option<&Path>,
        directory: Option<&Path>,
    ) -> Result<Prompt> {
        let line = ffi::c_text(line)?;
        let model = vision_model.map(ffi::c_path).transpose()?;
        let directory = directory.map(ffi::c_path).transpose()?;
        let given = |path: &Option<CString>| path.as_ref().map_or(std::ptr::null(), |p| p.as_ptr());
        let mut seen = [sys::fsdp2_tensor::default(); 5];
        let [pixels, grids, video_pixels, video_grids, seconds] = &mut seen;
        let prompt = Tensor::made(|out| unsafe {
            sys::fsdp2_tokenizer_encode_prompt(
                self.raw(),
                line.as_ptr(),
                given(&model),
                given(&directory),
                out,
                pixels,
                grids,
                video_pixels,
                video_grids,
                seconds,
            )
        })?;
        let mut vision_inputs: Vec<_> = seen
            .into_iter()
            .map(|raw| Tensor::own(raw).map(Arc::new))
            .collect();
        while let Some(None) = vision_inputs.last() {
            vision_inputs.pop(); // a model may take fewer
        }
        Ok(Prompt {
            tokens: prompt.read()?,
            vision_inputs,
        })
    }

    /// The text of tokens; with `keep_special` also of special ones, such as the end of a text.
    pub fn decode(&self, tokens: &[i64], keep_special: bool) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_tokenizer_decode(
                self.raw(),
                ffi::pointer(tokens),
                tokens.len(),
                i32::from(keep_special),
                buffer,
                cap,
                needed,
            )
        })
    }
}
