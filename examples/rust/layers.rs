//! A small transformer put together from the library's layers. The program writes two forwards of its own: the sum around each
//! sub-layer, and the loss.
//!
//! `fsdp2 run --nproc-per-node 2 -- layers TOKEN_FILE STEPS`

use std::env;
use std::error::Error;

use fsdp2::{
    layer, AdamwOptions, Forward, Loader, LoaderOptions, Mesh, Module, ModuleOptions, Optimizer,
    Result, Shard, ShardOptions, Step, Tensor, Wrap,
};

const VOCABULARY: i64 = 384;
const WIDTH: i64 = 32;
const LAYERS: usize = 2;

/// A module whose forward calls a child.
fn around(
    kind: &str,
    child: Module,
    forward: impl Fn(&Forward, &Module) -> Result<Tensor> + Send + 'static,
) -> Result<Module> {
    let options = ModuleOptions {
        seed: 1, // the same values on every rank, however many there are
        ..Default::default()
    };
    let part = child.duplicate()?;
    let module = Module::create_custom(kind, &options, move |own| Ok(forward(own, &child)?))?;
    module.add_child("inner", &part)?;
    Ok(module)
}

fn norm() -> Result<Module> {
    layer!("RMSNorm", normalized_shape = WIDTH, eps = 1e-5)
}

fn attention() -> Result<Module> {
    layer!(
        "MultiheadAttention",
        embed_dim = WIDTH,
        num_heads = 4,
        num_kv_heads = 2,
        is_causal = true,
        rope_theta = 10000,
        bias = false
    )
}

fn mlp() -> Result<Module> {
    layer!(
        "GatedMLP",
        hidden_size = WIDTH,
        intermediate_size = 2 * WIDTH,
        bias = false
    )
}

fn residual(sub_layer: &Module) -> Result<Module> {
    let inner = layer!("Sequential")?;
    inner.add_child("norm", &norm()?)?;
    inner.add_child("layer", sub_layer)?;
    around("Residual", inner, |forward, inner| {
        let x = forward.input(0)?;
        x + inner.forward_one([x])
    })
}

/// From tokens and labels `[B, S]` to the loss.
fn make_model() -> Result<Module> {
    let (words, width) = (VOCABULARY, WIDTH);
    let embedding = layer!("Embedding", num_embeddings = words, embedding_dim = width)?;
    let head = layer!(
        "Linear",
        in_features = width,
        out_features = words,
        bias = false
    )?;
    let chain = layer!("Sequential")?;
    chain.add_child("embedding", &embedding)?;
    for i in 0..LAYERS {
        chain.add_child(&format!("attention{i}"), &residual(&attention()?)?)?;
        chain.add_child(&format!("mlp{i}"), &residual(&mlp()?)?)?;
    }
    chain.add_child("norm", &norm()?)?;
    chain.add_child("head", &head)?;
    around("Transformer", chain, |forward, chain| {
        let logits = chain.forward_one([forward.input(0)?])?.transpose(1, 2)?; // [B, V, S]
        logits.cross_entropy(forward.input(1)?)
    })
}

fn train(tokens: &str, steps: usize) -> Result<()> {
    let mesh = Mesh::create(&Default::default())?;
    let rank = mesh.info()?.rank;
    let module = make_model()?;
    let sharding = ShardOptions {
        wrap: Wrap::Kinds,
        wrap_kinds: vec!["Residual".to_string()],
        ..Default::default()
    };
    let shard = Shard::create(&module, &mesh, &sharding)?;
    let adamw = AdamwOptions {
        lr: 3e-3,
        ..Default::default()
    };
    let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
    let data = LoaderOptions {
        sequence_length: 32,
        global_batch: 8,
        vocab_size: VOCABULARY,
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
    match arguments.as_slice() {
        [tokens, steps] => Ok(train(tokens, steps.parse()?)?),
        _ => Err("usage: layers TOKEN_FILE STEPS".into()),
    }
}
