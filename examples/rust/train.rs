//! Fine-tunes a Hugging Face model for five steps on all ranks of the job:
//!
//! `fsdp2 run --nproc-per-node 2 -- train MODEL_DIRECTORY TOKEN_FILE`

use std::env;
use std::error::Error;

use fsdp2::{AdamwOptions, Loader, LoaderOptions, Mesh, Module, Optimizer, Shard, Step};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [directory, tokens] => train(directory, tokens)?,
        _ => return Err("usage: train MODEL_DIRECTORY TOKEN_FILE".into()),
    }
    match fsdp2::runtime::live_handles() {
        0 => Ok(()),
        live => Err(format!("{live} live handles").into()),
    }
}

fn train(directory: &str, tokens: &str) -> fsdp2::Result<()> {
    let mesh = Mesh::create(&Default::default())?;
    let module = Module::from_pretrained(directory, &Default::default())?;
    let shard = Shard::create(&module, &mesh, &Default::default())?;
    let adamw = AdamwOptions {
        lr: 3e-3,
        beta2: 0.95,
        weight_decay: 0.1,
        ..Default::default()
    };
    let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
    let data = LoaderOptions {
        sequence_length: 32,
        global_batch: 8,
        vocab_size: module.info()?.vocab_size,
        ..Default::default()
    };
    let loader = Loader::open(&mesh, tokens, &data)?;
    let step = Step::create(&shard, &optimizer, &Default::default())?;
    for _ in 0..5 {
        let result = step.run(&loader.next()?)?;
        if mesh.info()?.rank == 0 {
            println!("step {} loss {:.6}", result.step, result.loss);
        }
    }
    Ok(())
}
