//! What a call costs: `calls BATCHES`. Prints for each call the ns of one in the fastest batch, of one with the destruction of its
//! result, and the latter's mean over all batches.

use std::env;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use fsdp2::{Module, Result, Tensor};

const CALLS_IN_A_BATCH: usize = 1000;
const HELD: usize = 50; // results, before they are destroyed

fn create() -> Result<Tensor> {
    Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[4])
}

fn measure(name: &str, batches: u32, call: impl Fn() -> Result<Tensor>) -> Result<()> {
    let (mut fastest, mut fastest_of_both, mut all) = (f64::INFINITY, f64::INFINITY, 0.0);
    let mut held = Vec::with_capacity(HELD);
    let a_call = |taken: Duration| taken.as_secs_f64() * 1e9 / CALLS_IN_A_BATCH as f64;
    for _ in 0..batches {
        let (mut calls, mut both) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..CALLS_IN_A_BATCH / HELD {
            let start = Instant::now();
            for _ in 0..HELD {
                held.push(call()?);
            }
            calls += start.elapsed();
            held.clear();
            both += start.elapsed();
        }
        fastest = a_call(calls).min(fastest);
        fastest_of_both = a_call(both).min(fastest_of_both);
        all += a_call(both) / f64::from(batches);
    }
    println!("{name} {fastest:.1} {fastest_of_both:.1} {all:.1}");
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let batches = env::args().nth(1).map_or(Ok(100), |text| text.parse())?;
    thread::spawn(|| ()); // as in any job, where memory and reference counts cost what they do among threads
    let x = create()?;
    let same = Module::create_custom("Same", &Default::default(), |forward| {
        Ok(forward.input(0)?.duplicate()?)
    })?;
    measure("tensor", batches, create)?;
    measure("operator", batches, || &x + &x)?;
    measure("forward", batches, || same.forward_one([&x]))?;
    Ok(())
}
