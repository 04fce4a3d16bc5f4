//! What a program does itself in place of the library, what it keeps for itself, and what it forgets.

mod common;

use std::fs;
use std::sync::{Arc, Mutex};

use common::{on_ranks, regression, regression_data};
use fsdp2::{
    function, no_grad, op, CallbackResult, Function, FunctionBackward, FunctionForward, GatherInfo,
    Init, Mesh, Module, ModuleOptions, Optimizer, ParameterOptions, ReduceOp, Result, Schedule,
    SgdOptions, Shard, ShardOptions, Status, Step, StepOptions, Tensor, Which, Wrap,
};

const STEPS: usize = 6;
const PEAK: f64 = 0.1;
const MOMENTUM: f64 = 0.9;

/// `regression` without its loss.
fn line() -> Result<Module> {
    let options = ModuleOptions {
        seed: 7,
        ..Default::default()
    };
    let module = Module::create_custom("Line", &options, |forward| {
        let [weight, bias] = forward.parameters()?;
        Ok(forward.input(0)?.linear(weight, Some(bias))?)
    })?;
    module.add_parameter("weight", &[3, 4], &Default::default())?;
    let zeros = ParameterOptions {
        init: Init::Zeros,
        ..Default::default()
    };
    module.add_parameter("bias", &[3], &zeros)?;
    Ok(module)
}

/// The losses of the library's step, optimizer and schedule.
fn trained_by_the_library(mesh: &Mesh, rank: i32) -> Result<Vec<f64>> {
    let shard = Shard::create(&regression()?, mesh, &Default::default())?;
    let sgd = SgdOptions {
        lr: PEAK,
        momentum: MOMENTUM,
        ..Default::default()
    };
    let optimizer = Optimizer::create_sgd(&shard, &sgd)?;
    let falling = StepOptions {
        schedule: Schedule::Linear,
        total_steps: STEPS as i64,
        ..Default::default()
    };
    let step = Step::create(&shard, &optimizer, &falling)?;
    (0..STEPS)
        .map(|_| Ok(step.run(&regression_data(rank))?.loss))
        .collect()
}

/// The same by the program's own hands.
fn trained_by_hand(mesh: &Mesh, rank: i32) -> Result<Vec<f64>> {
    let module = line()?;
    let shard = Shard::create(&module, mesh, &Default::default())?;
    let [x, y] = regression_data(rank);
    let weights: Vec<Tensor> = (0..shard.parameter_count()?)
        .map(|i| shard.parameter(i, Which::Local))
        .collect::<Result<_>>()?;
    let velocities: Vec<Tensor> = weights
        .iter()
        .map(|weight| op!("aten::zeros_like", weight))
        .collect::<Result<_>>()?;
    let mut losses = vec![];
    for step in 0..STEPS {
        let error = (module.forward_one([&x])? - &y)?;
        let loss = (&error * &error)?.mean()?;
        loss.backward()?;
        let lr = PEAK * (1.0 - step as f64 / STEPS as f64);
        no_grad(|| -> Result<()> {
            for (i, (weight, velocity)) in weights.iter().zip(&velocities).enumerate() {
                let gradient = shard.parameter(i, Which::LocalGrad)?;
                op!("aten::mul_.Scalar", velocity, MOMENTUM)?;
                op!("aten::add_.Tensor", velocity, &gradient)?;
                op!("aten::add_.Tensor", weight, velocity, -lr)?;
            }
            Ok(())
        })?;
        shard.zero_grad()?;
        let mut mean = [loss.value()?];
        mesh.all_reduce(&mut mean, ReduceOp::Average)?;
        losses.push(mean[0]);
    }
    Ok(losses)
}

#[test]
fn a_programs_own_loss_schedule_and_optimizer_train_as_the_librarys() {
    let losses = on_ranks(2, |rank, mesh| {
        (
            trained_by_the_library(&mesh, rank).unwrap(),
            trained_by_hand(&mesh, rank).unwrap(),
        )
    });
    for (expected, found) in losses {
        assert!(expected[STEPS - 1] < 0.8 * expected[0], "{expected:?}");
        for (expected, found) in expected.iter().zip(&found) {
            assert!((expected - found).abs() < 1e-6, "{expected} and {found}");
        }
    }
}

#[test]
fn an_input_gets_its_gradient_through_a_sharded_module() {
    on_ranks(2, |rank, mesh| -> Result<()> {
        let module = line()?;
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        let [x, _] = regression_data(rank);
        x.set_requires_grad(true)?;
        module.forward_one([&x])?.sum()?.backward()?;
        let weight = shard.parameter(shard.parameter_index("weight")?, Which::Full)?;
        let row: Vec<f32> = weight.sum_dims(&[0], false)?.read()?;
        let gradient: Vec<f32> = x.grad()?.read()?;
        for (found, expected) in gradient.iter().zip([row.clone(), row].concat()) {
            assert!((found - expected).abs() < 1e-6, "{found} and {expected}");
        }
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

/// Doubles, and may fail in backward.
struct Doubles {
    fails: bool,
}

impl Function for Doubles {
    fn forward(&self, call: &mut FunctionForward<'_>) -> CallbackResult<Vec<Tensor>> {
        let [x] = call.inputs()?;
        Ok(vec![(x * 2.0)?])
    }

    fn backward(&self, call: &FunctionBackward<'_>) -> CallbackResult<Vec<Option<Tensor>>> {
        let [gradient] = call.output_gradients()?;
        match self.fails {
            true => Err("deep inside".into()),
            false => Ok(vec![Some((gradient * 2.0)?)]),
        }
    }
}

/// A module of the class Whole whose child `part` is of the class Part, with a parameter `weight` of its own.
fn whole_of(
    part: impl Fn(&Tensor, &Tensor) -> CallbackResult<Tensor> + Send + 'static,
    then: impl Fn(Tensor) -> CallbackResult<Tensor> + Send + 'static,
) -> Result<Module> {
    let inner = Module::create_custom("Part", &Default::default(), move |forward| {
        part(forward.input(0)?, forward.parameter(0)?)
    })?;
    inner.add_parameter("weight", &[4], &Default::default())?;
    let child = inner.duplicate()?;
    let whole = Module::create_custom("Whole", &Default::default(), move |forward| {
        then(child.forward_one([forward.input(0)?])?)
    })?;
    whole.add_child("part", &inner)?;
    Ok(whole)
}

fn parts_as_units() -> ShardOptions {
    ShardOptions {
        wrap: Wrap::Kinds,
        wrap_kinds: vec!["Part".into()],
        ..Default::default()
    }
}

#[test]
fn an_error_deep_inside_a_step_reaches_its_caller_on_every_rank() {
    let errors = on_ranks(2, |rank, mesh| {
        let part = move |x: &Tensor, weight: &Tensor| {
            let product = (x * weight)?;
            let doubles = Doubles { fails: rank == 1 };
            Ok(function::call("doubles", doubles, &[&product])?.remove(0))
        };
        let whole = whole_of(part, |hidden| Ok(hidden.sum()?)).unwrap();
        let shard = Shard::create(&whole, &mesh, &parts_as_units()).unwrap();
        let optimizer = Optimizer::create_sgd(&shard, &Default::default()).unwrap();
        let step = Step::create(&shard, &optimizer, &Default::default()).unwrap();
        let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[4]).unwrap();
        step.run([&x]).unwrap_err()
    });
    assert_eq!(errors[0].status(), Status::PeerFailed);
    assert_eq!(errors[1].status(), Status::Callback);
    for error in errors {
        assert!(error.message().contains("backward of doubles"), "{error}");
        assert!(error.message().contains("deep inside"), "{error}");
    }
}

/// Rank 0 fails where the part is gathered, for which rank 1 waits inside the forward of the whole.
#[test]
fn a_forward_that_waits_for_a_failed_rank_has_not_failed() {
    let errors = on_ranks(2, |rank, mesh| {
        let part = |x: &Tensor, weight: &Tensor| Ok((x * weight)?);
        let whole = whole_of(part, |hidden| Ok(hidden.sum()?)).unwrap();
        let shard = Shard::create(&whole, &mesh, &parts_as_units()).unwrap();
        let pre = move |_: &GatherInfo<'_>, chunk: &Tensor| match rank {
            0 => Err("nothing to send".into()),
            _ => Ok(chunk.duplicate()?),
        };
        shard
            .set_all_gather_extension("part", pre, |_, _, _| Ok(()))
            .unwrap();
        let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[4]).unwrap();
        whole.forward_one([&x]).unwrap_err()
    });
    assert_eq!(errors[0].status(), Status::Callback);
    assert_eq!(errors[1].status(), Status::PeerFailed);
    for error in errors {
        assert!(error.message().contains("nothing to send"), "{error}");
    }
}

#[test]
fn a_parameter_that_a_forward_keeps_is_refused_once_it_is_freed() {
    on_ranks(2, |_, mesh| -> Result<()> {
        let kept = Arc::new(Mutex::new(None));
        let (keeps, uses) = (kept.clone(), kept.clone());
        let part = move |x: &Tensor, weight: &Tensor| {
            *keeps.lock().unwrap() = Some(weight.duplicate()?);
            Ok((x * weight)?)
        };
        let whole = whole_of(part, move |hidden| {
            let weight = uses.lock().unwrap();
            Ok((hidden * weight.as_ref().unwrap())?.sum()?)
        })?;
        let _shard = Shard::create(&whole, &mesh, &parts_as_units())?;
        let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[4])?;
        let title = "parameter 'part.weight' of unit 'part'";
        let inside = whole.forward_one([&x]).unwrap_err();
        assert_eq!(inside.status(), Status::Callback);
        assert!(inside.message().contains(title), "{inside}");
        let weight = kept.lock().unwrap().take().unwrap();
        let outside = weight.read::<f32>().unwrap_err();
        assert_eq!(outside.status(), Status::WrongState);
        assert!(outside.message().contains(title), "{outside}");
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

#[test]
fn what_is_forgotten_takes_no_memory() -> Result<()> {
    const FLOATS: usize = 9 << 20; // so large that the allocator gives its memory back at once
    let numbers = vec![1f32; FLOATS];
    let forget = || -> Result<()> {
        let whole = whole_of(|x, _| Ok(x.exp()?), |hidden| Ok(hidden.sum()?))?;
        let mesh = common::alone();
        let _shard = Shard::create(&whole, &mesh, &Default::default())?;
        let x = Tensor::from_slice(&numbers, &[FLOATS as i64])?;
        x.set_requires_grad(true)?;
        let sum = whole.forward_one([&x])?;
        sum.backward()?;
        x.grad()?;
        whole.forward_one([&x])?; // its graph is dropped, and never used
        Ok(())
    };
    (0..3).try_for_each(|_| forget())?;
    let before = resident();
    (0..5).try_for_each(|_| forget())?;
    let grown = resident().saturating_sub(before);
    let half = 5 * 4 * FLOATS / 2; // of what one tensor a round would take
    assert!(grown < half, "{grown} bytes more after 5 rounds");
    Ok(())
}
