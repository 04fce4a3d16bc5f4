//! What the tests share: ranks as threads, the golden models, a small module of closures.
#![allow(dead_code)] // no test uses all of it

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process, thread};

use fsdp2::{
    Init, Loader, LoaderOptions, Mesh, MeshOptions, Module, ModuleOptions, ParameterOptions,
    Result, Shard, Tensor,
};

/// Runs a function on so many ranks, each a thread with a mesh of all, and returns what they return.
pub fn on_ranks<R: Send>(ranks: i32, run: impl Fn(i32, Mesh) -> R + Sync) -> Vec<R> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let start = |rank| {
        fsdp2::runtime::set_threads(1).unwrap();
        let options = MeshOptions {
            rendezvous: Some(format!("thread://test-{number}")),
            rank,
            world_size: ranks,
            timeout_ms: 60_000,
            ..Default::default()
        };
        run(rank, Mesh::create(&options).unwrap())
    };
    thread::scope(|threads| {
        let start = &start;
        let running: Vec<_> = (0..ranks)
            .map(|rank| threads.spawn(move || start(rank)))
            .collect();
        running
            .into_iter()
            .map(|rank| rank.join().unwrap())
            .collect()
    })
}

/// A mesh of this thread alone.
pub fn alone() -> Mesh {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Mesh::create(&MeshOptions {
        rendezvous: Some(format!("thread://alone-{number}")),
        rank: 0,
        world_size: 1,
        ..Default::default()
    })
    .unwrap()
}

pub fn golden(path: &str) -> PathBuf {
    let golden = env::var("FSDP2_TEST_DATA").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/parity/golden").to_string()
    });
    PathBuf::from(golden).join(path)
}

pub fn tiny_llama() -> Module {
    Module::from_pretrained(golden("models/tiny-llama"), &Default::default()).unwrap()
}

pub fn tiny_tokens(mesh: &Mesh) -> Loader {
    let data = LoaderOptions {
        sequence_length: 32,
        global_batch: 8,
        vocab_size: 384,
        ..Default::default()
    };
    Loader::open(mesh, golden("tokens/tiny-llama.bin"), &data).unwrap()
}

pub fn llama_on(mesh: &Mesh) -> (Module, Shard) {
    let module = tiny_llama();
    let shard = Shard::create(&module, mesh, &Default::default()).unwrap();
    (module, shard)
}

/// `mean((x @ weight.T + bias - y)^2)` of inputs x `[n, 4]` and y `[n, 3]`.
pub fn regression() -> Result<Module> {
    let options = ModuleOptions {
        seed: 7,
        ..Default::default()
    };
    let module = Module::create_custom("Regression", &options, |forward| {
        let [weight, bias] = forward.parameters()?;
        let error = (forward.input(0)?.linear(weight, Some(bias))? - forward.input(1)?)?;
        Ok((&error * &error)?.mean()?)
    })?;
    module.add_parameter("weight", &[3, 4], &Default::default())?;
    let zeros = ParameterOptions {
        init: Init::Zeros,
        ..Default::default()
    };
    module.add_parameter("bias", &[3], &zeros)?;
    Ok(module)
}

/// The inputs of a rank.
pub fn regression_data(rank: i32) -> [Tensor; 2] {
    let numbers = |n: i32| -> Vec<f32> {
        (0..n)
            .map(|i| ((i * 37 + rank * 11) % 17) as f32 / 8.0 - 1.0)
            .collect()
    };
    [
        Tensor::from_slice(&numbers(8), &[2, 4]).unwrap(),
        Tensor::from_slice(&numbers(6), &[2, 3]).unwrap(),
    ]
}

/// A directory of this process, empty.
pub fn directory(name: &str) -> PathBuf {
    let parent = env::var_os("TEST_TMPDIR").map_or_else(env::temp_dir, PathBuf::from);
    let path = parent.join(format!("fsdp2-rust-{}-{name}", process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}
