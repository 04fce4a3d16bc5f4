//! What a call costs: `calls BATCHES`. Prints for each call the ns of the fastest batch, and of all.

use std::env;
use std::error::Error;
use std::thread;
use std::time::Instant;

use fsdp2::{Module, Result, Tensor};

const CALLS_IN_A_BATCH: u32 = 1000;

fn create() -> Result<Tensor> {
    Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[4])
}

fn measure(name: &str, batches: u32, call: impl Fn() -> Result<()>) -> Result<()> {
    let (mut fastest, mut all) = (f64::INFINITY, 0.0);
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..CALLS_IN_A_BATCH {
            call()?;
        }
        let taken = start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS_IN_A_BATCH);
        fastest = taken.min(fastest);
        all += taken / f64::from(batches);
    }
    println!("{name} {fastest:.1} {all:.1}");
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let batches = env::args().nth(1).map_or(Ok(100), |text| text.parse())?;
    thread::spawn(|| ()); // as in any job, where memory and reference counts cost what they do among threads
    let x = create()?;
    let same = Module::create_custom("Same", &Default::default(), |forward| {
        Ok(forward.input(0)?.duplicate()?)
    })?;
    measure("tensor", batches, || create().map(drop))?;
    measure("operator", batches, || (&x + &x).map(drop))?;
    measure("forward", batches, || same.forward_one([&x]).map(drop))?;
    Ok(())
}
