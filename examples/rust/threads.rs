//! Ranks as threads of one program, without a launcher: each thread joins the same name.
//!
//! `threads MODEL_DIRECTORY TOKEN_FILE RANKS STEPS`

use std::env;
use std::error::Error;
use std::thread;

use fsdp2::{
    AdamwOptions, Loader, LoaderOptions, Mesh, MeshOptions, Module, Optimizer, Result, Shard, Step,
};

fn train(directory: &str, tokens: &str, rank: i32, ranks: i32, steps: usize) -> Result<()> {
    fsdp2::runtime::set_threads(1)?; // of this thread's computations
    let mesh = Mesh::create(&MeshOptions {
        rendezvous: Some("thread://example".to_string()),
        rank,
        world_size: ranks,
        ..Default::default()
    })?;
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
    for i in 0..steps {
        let result = step.run(&loader.next()?)?;
        if rank == 0 {
            println!("step {i} loss {:.6}", result.loss);
        }
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (directory, tokens, ranks, steps): (_, _, i32, usize) = match arguments.as_slice() {
        [model, tokens, ranks, steps] => (model, tokens, ranks.parse()?, steps.parse()?),
        _ => return Err("usage: threads MODEL_DIRECTORY TOKEN_FILE RANKS STEPS".into()),
    };
    thread::scope(|threads| {
        let start = |rank| threads.spawn(move || train(directory, tokens, rank, ranks, steps));
        let running: Vec<_> = (0..ranks).map(start).collect();
        // A rank that fails tells the others, so that all of them end.
        running
            .into_iter()
            .try_for_each(|rank| rank.join().expect("ranks do not panic"))
    })?;
    Ok(())
}
