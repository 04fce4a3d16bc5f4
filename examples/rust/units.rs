//! Looks at a sharded model's units and steers them by hand:
//!
//! `fsdp2 run --nproc-per-node 2 -- units MODEL_DIRECTORY TOKEN_FILE`

use std::env;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use fsdp2::{EventKind, Loader, LoaderOptions, Mesh, Module, Result, Shard};

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [directory, tokens] => run(directory, tokens)?,
        _ => return Err("usage: units MODEL_DIRECTORY TOKEN_FILE".into()),
    }
    match fsdp2::runtime::live_handles() {
        0 => Ok(()),
        live => Err(format!("{live} live handles").into()),
    }
}

fn run(directory: &str, tokens: &str) -> Result<()> {
    let mesh = Mesh::create(&Default::default())?;
    let module = Module::from_pretrained(directory, &Default::default())?;
    let shard = Shard::create(&module, &mesh, &Default::default())?;
    let lines = [
        unshard_by_hand(&shard)?,
        describe_placement(&shard, "model.embed_tokens.weight")?,
        count_gradients(&mesh, &module, &shard, tokens)?,
    ];
    if mesh.info()?.rank == 0 {
        println!("{}", lines.join("\n"));
    }
    Ok(())
}

fn unshard_by_hand(shard: &Shard) -> Result<String> {
    shard.unshard("model.layers.0", true)?;
    shard.wait_unshard("model.layers.0")?;
    let before = shard.stats()?.unsharded_bytes;
    shard.reshard("model.layers.0")?;
    let after = shard.stats()?.unsharded_bytes;
    let events: Vec<&str> = shard
        .events()?
        .iter()
        .map(|event| match event.kind {
            EventKind::AllGather => "all-gather",
            EventKind::Unshard => "unshard",
            EventKind::Reshard => "reshard",
            _ => "another",
        })
        .collect();
    let events = events.join(", ");
    Ok(format!(
        "unsharded bytes: {before}, then {after}\nevents: {events}"
    ))
}

fn describe_placement(shard: &Shard, name: &str) -> Result<String> {
    let info = shard.parameter_info(shard.parameter_index(name)?)?;
    Ok(format!(
        "{name}: {} x {}, here {} x {}, sharded on dim {} over {} ranks",
        info.shape[0],
        info.shape[1],
        info.local_shape[0],
        info.local_shape[1],
        info.shard_dim,
        info.shard_ranks
    ))
}

fn count_gradients(mesh: &Mesh, module: &Module, shard: &Shard, tokens: &str) -> Result<String> {
    let data = LoaderOptions {
        sequence_length: 32,
        global_batch: 2,
        vocab_size: module.info()?.vocab_size,
        ..Default::default()
    };
    let batch = Loader::open(mesh, tokens, &data)?.next()?;
    let ready = Arc::new(AtomicUsize::new(0));
    let counter = ready.clone();
    shard.set_gradient_ready("", true, move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })?;
    module.forward_one(&batch)?.backward()?;
    shard.remove_gradient_ready("", true)?;
    let (ready, all) = (ready.load(Ordering::Relaxed), shard.parameter_count()?);
    Ok(format!("gradients ready: {ready} of {all} parameters"))
}
