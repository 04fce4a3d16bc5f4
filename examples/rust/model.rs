//! A model written in Rust: the small transformer of `examples/c/model.c`, made of LibTorch's operators, its layers sharded as
//! units and recomputed in backward.
//!
//! `fsdp2 run --nproc-per-node 2 -- model TOKEN_FILE STEPS [GROUP]`
//!
//! With GROUP it computes in bf16 and is sharded over groups of so many ranks, each group a replica.

use std::env;
use std::error::Error;

use fsdp2::{
    ActivationOptions, AdamwOptions, Chosen, Dtype, Forward, Init, Loader, LoaderOptions, Mesh,
    MeshOptions, Module, ModuleOptions, Optimizer, ParameterOptions, Result, Shard, ShardOptions,
    Step, Tensor, Wrap,
};

const VOCABULARY: i64 = 384;
const WIDTH: i64 = 32;
const HEADS: i64 = 4;
const LAYERS: usize = 2;
const SEQUENCE: i64 = 32;
const INNER: i64 = 64;

fn norm(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.rms_norm(&[WIDTH], Some(weight), Some(1e-5))
}

fn attention(x: &Tensor, qkv: &Tensor, out: &Tensor) -> Result<Tensor> {
    let all = x
        .linear(qkv, None)?
        .view(&[-1, SEQUENCE, 3, HEADS, WIDTH / HEADS])?
        .permute(&[2, 0, 3, 1, 4])?;
    let [q, k, v] = [all.select(0, 0)?, all.select(0, 1)?, all.select(0, 2)?];
    q.scaled_dot_product_attention(&k, &v, None, true)?
        .transpose(1, 2)?
        .reshape(&[-1, SEQUENCE, WIDTH])?
        .linear(out, None)
}

fn layer(forward: &Forward) -> Result<Tensor> {
    let [attention_norm, qkv, out, mlp_norm, up, down] = forward.parameters()?;
    let x = forward.input(0)?;
    let x = (x + attention(&norm(x, attention_norm)?, qkv, out))?;
    let inner = norm(&x, mlp_norm)?.linear(up, None)?.gelu()?;
    &x + inner.linear(down, None)
}

/// From tokens and labels to the loss.
fn transformer(forward: &Forward, layers: &[Module]) -> Result<Tensor> {
    let [tokens, positions, last_norm, head] = forward.parameters()?;
    let mut x = (tokens.embedding(forward.input(0)?)? + positions)?;
    for layer in layers {
        x = layer.forward_one([&x])?;
    }
    let logits = norm(&x, last_norm)?.linear(head, None)?;
    let labels = forward.input(1)?.view(&[-1])?;
    logits
        .view(&[-1, VOCABULARY])?
        .to_dtype(Dtype::F32)? // a loss wants more digits
        .cross_entropy(&labels)
}

fn make_layer() -> Result<Module> {
    let module =
        Module::create_custom("Layer", &Default::default(), |forward| Ok(layer(forward)?))?;
    add_norm(&module, "attention_norm")?;
    add(&module, "qkv", 3 * WIDTH, WIDTH)?;
    add(&module, "out", WIDTH, WIDTH)?;
    add_norm(&module, "mlp_norm")?;
    add(&module, "up", INNER, WIDTH)?;
    add(&module, "down", WIDTH, INNER)?;
    Ok(module)
}

fn make_model() -> Result<Module> {
    let layers = (0..LAYERS)
        .map(|_| make_layer())
        .collect::<Result<Vec<_>>>()?;
    let children = layers
        .iter()
        .map(Module::duplicate)
        .collect::<Result<Vec<_>>>()?;
    let options = ModuleOptions {
        seed: 1, // the same values on every rank, however many there are
        ..Default::default()
    };
    let module = Module::create_custom("Transformer", &options, move |forward| {
        Ok(transformer(forward, &layers)?)
    })?;
    add(&module, "tokens", VOCABULARY, WIDTH)?;
    add(&module, "positions", SEQUENCE, WIDTH)?;
    add_norm(&module, "norm")?;
    add(&module, "head", VOCABULARY, WIDTH)?;
    for (i, child) in children.iter().enumerate() {
        module.add_child(&format!("layer{i}"), child)?;
    }
    Ok(module)
}

fn add(module: &Module, name: &str, rows: i64, columns: i64) -> Result<()> {
    module.add_parameter(name, &[rows, columns], &Default::default())
}

fn add_norm(module: &Module, name: &str) -> Result<()> {
    let ones = ParameterOptions {
        init: Init::Ones,
        ..Default::default()
    };
    module.add_parameter(name, &[WIDTH], &ones)
}

fn train(tokens: &str, steps: usize, group: Option<i64>) -> Result<()> {
    let mesh = Mesh::create(&MeshOptions {
        fsdp_size: group.unwrap_or(0),
        ..Default::default()
    })?;
    let rank = mesh.info()?.rank;
    let module = make_model()?;
    let sharding = ShardOptions {
        wrap: Wrap::Kinds,
        wrap_kinds: vec!["Layer".to_string()],
        param_dtype: group.map(|_| Dtype::Bf16),
        reduce_dtype: group.map(|_| Dtype::F32),
        ..Default::default()
    };
    let shard = Shard::create(&module, &mesh, &sharding)?;
    module.checkpoint_activations(&ActivationOptions {
        modules: Chosen::Kinds(&["Layer"]),
        ..Default::default()
    })?;
    let adamw = AdamwOptions {
        lr: 3e-3,
        ..Default::default()
    };
    let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
    let data = LoaderOptions {
        sequence_length: SEQUENCE,
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
        [tokens, steps] => Ok(train(tokens, steps.parse()?, None)?),
        [tokens, steps, group] => Ok(train(tokens, steps.parse()?, Some(group.parse()?))?),
        _ => Err("usage: model TOKEN_FILE STEPS [GROUP]".into()),
    }
}
