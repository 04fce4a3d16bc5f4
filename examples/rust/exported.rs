//! Trains a program that PyTorch's torch.export has written, such as a model of `examples/python/export_model.py`, on tokens and
//! labels of `[4, 7]`:
//!
//! `fsdp2 run --nproc-per-node 2 -- exported PROGRAM.pt2 STEPS`

use std::env;
use std::error::Error;

use fsdp2::{AdamwOptions, Mesh, Module, Optimizer, Result, Shard, Step, Tensor};

fn train(program: &str, steps: i64) -> Result<()> {
    let mesh = Mesh::create(&Default::default())?;
    let module = Module::from_exported(program, &Default::default())?;
    let shard = Shard::create(&module, &mesh, &Default::default())?;
    let adamw = AdamwOptions {
        lr: 3e-3,
        ..Default::default()
    };
    let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
    let step = Step::create(&shard, &optimizer, &Default::default())?;
    let rank = i64::from(mesh.info()?.rank);
    for i in 0..steps {
        // Each rank has tokens of its own; the model shifts its labels itself.
        let tokens = (0..28).map(|k| (5 * k + 11 * i + 3 * rank) % 23).collect();
        let tokens = Tensor::from_vec::<i64>(tokens, &[4, 7])?;
        let result = step.run([&tokens, &tokens])?;
        if rank == 0 {
            println!("step {i} loss {:.6}", result.loss);
        }
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [program, steps] => train(program, steps.parse()?)?,
        _ => return Err("usage: exported PROGRAM STEPS".into()),
    }
    Ok(())
}
