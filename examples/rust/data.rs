//! Trains on data that the program makes: the library reads them where they lie.
//!
//! `fsdp2 run --nproc-per-node 2 -- data MODEL_DIRECTORY STEPS`

use std::env;
use std::error::Error;

use fsdp2::{AdamwOptions, Mesh, Module, Optimizer, Result, Shard, Step, Tensor};

const ROWS: i64 = 8;
const LENGTH: i64 = 32;
const VOCABULARY: i64 = 384;

/// This rank's rows of a step's batch: each token is followed by the one that is 5 more.
fn batch(step: i64, rows: std::ops::Range<i64>) -> Result<[Tensor; 2]> {
    let shape = [rows.end - rows.start, LENGTH];
    let tokens: Vec<i64> = rows
        .flat_map(|row| (0..LENGTH).map(move |column| 31 * row + 17 * step + 5 * column))
        .map(|number| number % VOCABULARY)
        .collect();
    let labels = tokens.iter().map(|token| (token + 5) % VOCABULARY);
    let labels = labels.collect();
    // The tensors own the memory of the vectors from now on.
    Ok([
        Tensor::from_vec(tokens, &shape)?,
        Tensor::from_vec(labels, &shape)?,
    ])
}

fn train(directory: &str, steps: i64) -> Result<()> {
    let mesh = Mesh::create(&Default::default())?;
    let module = Module::from_pretrained(directory, &Default::default())?;
    let shard = Shard::create(&module, &mesh, &Default::default())?;
    let adamw = AdamwOptions {
        lr: 3e-3,
        ..Default::default()
    };
    let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
    let step = Step::create(&shard, &optimizer, &Default::default())?;
    let job = mesh.info()?;
    let (rank, rows) = (i64::from(job.rank), ROWS / i64::from(job.world_size));
    for i in 0..steps {
        let result = step.run(&batch(i, rank * rows..(rank + 1) * rows)?)?;
        if rank == 0 {
            println!("step {i} loss {:.6}", result.loss);
        }
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [directory, steps] => train(directory, steps.parse()?)?,
        _ => return Err("usage: data MODEL_DIRECTORY STEPS".into()),
    }
    Ok(())
}
