//! Uses a model without training it: its loss on a text of tokens, and how it goes on.
//!
//! `fsdp2 run --nproc-per-node 2 -- generate MODEL_DIRECTORY`

use std::env;
use std::error::Error;

use fsdp2::{no_grad, GenerateOptions, Mesh, Module, Result, Shard, Tensor};

const LENGTH: usize = 16;

fn loss(module: &Module, text: &[i64]) -> Result<f64> {
    let shape = [1, LENGTH as i64];
    let tokens = Tensor::from_slice(&text[..LENGTH], &shape)?;
    let labels = Tensor::from_slice(&text[1..], &shape)?;
    no_grad(|| module.forward_one([&tokens, &labels]))?.value()
}

fn generate(directory: &str) -> Result<()> {
    let text: Vec<i64> = (0..=LENGTH as i64).map(|i| 7 * i % 384).collect();
    let mesh = Mesh::create(&Default::default())?;
    let module = Module::from_pretrained(directory, &Default::default())?;
    module.train(false)?; // no dropout
    let _shard = Shard::create(&module, &mesh, &Default::default())?;
    let loss = loss(&module, &text)?;
    let options = GenerateOptions {
        max_new_tokens: 8,
        temperature: 0.0, // always the most likely token
        ..Default::default()
    };
    let tokens = module.generate(&text[..LENGTH], &options)?;
    if mesh.info()?.rank == 0 {
        let tokens: Vec<String> = tokens.iter().map(i64::to_string).collect();
        println!("loss {loss:.6}\ntokens {}", tokens.join(" "));
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let directory = env::args()
        .nth(1)
        .ok_or("usage: generate MODEL_DIRECTORY")?;
    Ok(generate(&directory)?)
}
