//! Trains up to a number of steps from where it was left, on any number of ranks, and saves the run:
//!
//! `fsdp2 run --nproc-per-node 2 -- resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 3`, and then
//! `resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 5` goes on from there, on one rank.

use std::env;
use std::error::Error;

use fsdp2::{
    checkpoint, AdamwOptions, Checkpoint, Loader, LoaderOptions, Mesh, Module, Optimizer, Result,
    Shard, Status, Step,
};

fn resume(directory: &str, tokens: &str, run: &str, last: i64) -> Result<()> {
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
        global_batch: 12,
        vocab_size: module.info()?.vocab_size,
        ..Default::default()
    };
    let loader = Loader::open(&mesh, tokens, &data)?;
    let step = Step::create(&shard, &optimizer, &Default::default())?;
    let state = Checkpoint::of(&shard)
        .optimizer(&optimizer)
        .step(&step)
        .loader(&loader);

    // The newest checkpoint that is whole; none is in the directory of a run that begins.
    match checkpoint::offline::find(run) {
        Ok(path) => state.load(path, &Default::default())?,
        Err(error) if error.status() == Status::NotFound => {}
        Err(error) => return Err(error),
    }
    for _ in step.position()?..last {
        let result = step.run(&loader.next()?)?;
        if mesh.info()?.rank == 0 {
            println!("step {} loss {:.6}", result.step, result.loss);
        }
    }
    state.save(format!("{run}/step-{last:08}"), &Default::default())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [directory, tokens, run, last] => resume(directory, tokens, run, last.parse()?)?,
        _ => return Err("usage: resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY STEPS".into()),
    }
    Ok(())
}
