//! libfsdp2_tokenizers.so: Hugging Face tokenizers and chat templates, by the table of functions that core/text/tokenizers_abi.h
//! describes. libfsdp2.so opens it when a tokenizer.json is asked for, and needs it for nothing else.

mod abi;
mod chat;

use std::ffi::c_int;

use abi::{guard, slice, text, Problem, Text, Tokens, ABI};
use chat::Template;
use tokenizers::Tokenizer;

/// The functions of core/text/tokenizers_abi.h, which says what each does.
#[repr(C)]
pub struct Api {
    abi: u32,
    open: unsafe extern "C" fn(*const u8, usize, *mut Text) -> *mut Tokenizer,
    close: unsafe extern "C" fn(*mut Tokenizer),
    vocab_size: unsafe extern "C" fn(*const Tokenizer) -> u64,
    find_token: unsafe extern "C" fn(*const Tokenizer, *const u8, usize) -> i64,
    encode: unsafe extern "C" fn(
        *const Tokenizer,
        *const u8,
        usize,
        c_int,
        *mut Tokens,
        *mut Text,
    ) -> c_int,
    decode: unsafe extern "C" fn(
        *const Tokenizer,
        *const u32,
        usize,
        c_int,
        *mut Text,
        *mut Text,
    ) -> c_int,
    open_template: unsafe extern "C" fn(*const u8, usize, *mut Text) -> *mut Template,
    close_template: unsafe extern "C" fn(*mut Template),
    render: unsafe extern "C" fn(*const Template, *const u8, usize, *mut Text, *mut Text) -> c_int,
    free_text: unsafe extern "C" fn(Text),
    free_tokens: unsafe extern "C" fn(Tokens),
}

static API: Api = Api {
    abi: ABI,
    open,
    close,
    vocab_size,
    find_token,
    encode,
    decode,
    open_template,
    close_template,
    render,
    free_text,
    free_tokens,
};

#[no_mangle]
pub extern "C" fn fsdp2_tokenizers_get(abi: u32) -> *const Api {
    // Panics become errors; their messages are not for standard error. The hook is this library's own: Rust in the host has another.
    std::panic::set_hook(Box::new(|_| {}));
    if abi == ABI {
        &API
    } else {
        std::ptr::null()
    }
}

fn read_tokenizer(json: &[u8]) -> Result<Tokenizer, Problem> {
    let mut tokenizer = Tokenizer::from_bytes(json)?;
    tokenizer.with_truncation(None)?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

unsafe fn give<T>(value: Option<T>) -> *mut T {
    value.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

unsafe extern "C" fn open(json: *const u8, size: usize, error: *mut Text) -> *mut Tokenizer {
    give(guard(error, || read_tokenizer(slice(json, size))))
}

unsafe extern "C" fn close(tokenizer: *mut Tokenizer) {
    drop(Box::from_raw(tokenizer));
}

unsafe extern "C" fn vocab_size(tokenizer: *const Tokenizer) -> u64 {
    let largest = (*tokenizer).get_vocab(true).into_values().max();
    largest.map_or(0, |id| u64::from(id) + 1)
}

unsafe extern "C" fn find_token(tokenizer: *const Tokenizer, token: *const u8, size: usize) -> i64 {
    let id = text(token, size)
        .ok()
        .and_then(|token| (*tokenizer).token_to_id(token));
    id.map_or(-1, i64::from)
}

unsafe extern "C" fn encode(
    tokenizer: *const Tokenizer,
    data: *const u8,
    size: usize,
    add_special: c_int,
    out: *mut Tokens,
    error: *mut Text,
) -> c_int {
    let tokens = guard(error, || {
        let encoding = (*tokenizer).encode(text(data, size)?, add_special != 0)?;
        let begins = encoding
            .get_offsets()
            .iter()
            .map(|offsets| offsets.0 as u64)
            .collect();
        let added = encoding.get_special_tokens_mask();
        let at_end = added.iter().rev().take_while(|mask| **mask == 1).count();
        // Around an empty text nothing tells where it is.
        let behind = if at_end < added.len() { at_end } else { 0 };
        Ok(Tokens::new(encoding.get_ids().to_vec(), begins, behind))
    });
    put(tokens, out)
}

unsafe extern "C" fn decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special: c_int,
    out: *mut Text,
    error: *mut Text,
) -> c_int {
    put(
        guard(error, || {
            Ok(Text::new(
                (*tokenizer).decode(slice(ids, count), skip_special != 0)?,
            ))
        }),
        out,
    )
}

unsafe extern "C" fn open_template(
    source: *const u8,
    size: usize,
    error: *mut Text,
) -> *mut Template {
    give(guard(error, || Template::open(text(source, size)?)))
}

unsafe extern "C" fn close_template(template: *mut Template) {
    drop(Box::from_raw(template));
}

unsafe extern "C" fn render(
    template: *const Template,
    context: *const u8,
    size: usize,
    out: *mut Text,
    error: *mut Text,
) -> c_int {
    put(
        guard(error, || {
            Ok(Text::new((*template).render(text(context, size)?)?))
        }),
        out,
    )
}

unsafe extern "C" fn free_text(text: Text) {
    text.free();
}

unsafe extern "C" fn free_tokens(tokens: Tokens) {
    tokens.free();
}

unsafe fn put<T>(value: Option<T>, out: *mut T) -> c_int {
    value.map_or(0, |value| {
        *out = value;
        1
    })
}
