//! Text to tokens, and files of it to batches, on one rank.

use std::fs;

use fsdp2::{Loader, LoaderOptions, Mesh, MeshOptions, Result, Status, TokenFormat, Tokenizer};

mod common;

#[test]
fn text_becomes_tokens_and_comes_back() -> Result<()> {
    let bytes = Tokenizer::bytes()?;
    let info = bytes.info()?;
    assert_eq!((info.vocab_size, info.end_token), (256, 0));
    assert!(!info.has_chat_template);
    let tokens = bytes.duplicate()?.encode("a\u{e9}", true)?;
    assert_eq!(tokens, [0x61, 0xc3, 0xa9]);
    assert_eq!(bytes.decode(&tokens, false)?, "a\u{e9}");
    assert_eq!(bytes.encode_record("{\"text\": \"b\"}")?, [0x62, 0]);
    let prompt = bytes.encode_prompt(
        r#"{"prompt": "b", "response": "c"}"#,
        None,
        Some("/no".as_ref()),
    )?;
    assert_eq!(prompt.tokens, [0x62]);
    assert!(prompt.vision_inputs.is_empty());
    let error = bytes
        .encode_prompt(r#"{"messages": []}"#, None, None)
        .unwrap_err();
    assert_eq!(error.status(), Status::CorruptData);
    let error = bytes.encode_record("{").unwrap_err();
    assert_eq!(error.status(), Status::CorruptData);
    let error = Tokenizer::open("/no/such/tokenizer.json").unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    Ok(())
}

#[test]
fn a_mixture_takes_windows_by_weight() -> Result<()> {
    let directory = common::directory("mixture");
    let [first, second] = ["first", "second"].map(|name| directory.join(name));
    fs::write(&first, "aabbccd").unwrap();
    fs::write(&second, "xxyyz").unwrap();
    let mesh = Mesh::create(&MeshOptions::default())?;
    let options = LoaderOptions {
        format: TokenFormat::Bytes,
        sequence_length: 2,
        global_batch: 4,
        vocab_size: 256,
        read_ahead: 2,
        ..Default::default()
    };
    let loader = Loader::open_mixture(&mesh, &[(&first, 3.0), (&second, 1.0)], &options)?;
    assert_eq!(loader.info()?.n_windows, 5);
    assert_eq!(loader.info()?.steps_per_epoch, 2);
    let [tokens, _] = loader.next()?;
    let rows = tokens.read::<i64>()?;
    assert_eq!(
        rows.chunks(2).map(|row| row[0]).collect::<Vec<_>>(),
        b"abxc".map(i64::from)
    );
    let refused = Loader::open_mixture(&mesh, &[(first, 0.0)], &options);
    assert_eq!(refused.unwrap_err().status(), Status::InvalidArgument);
    Ok(())
}
