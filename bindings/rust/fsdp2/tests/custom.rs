//! Modules whose forward is a closure, and closures that fail.

mod common;

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{on_ranks, regression, regression_data};
use fsdp2::{
    ActivationOptions, Chosen, Module, Optimizer, Panic, Result, SgdOptions, Shard, ShardOptions,
    Status, Step, Tensor, Which,
};

fn losses(ranks: i32, steps: usize) -> Vec<f64> {
    let all = on_ranks(ranks, |rank, mesh| -> Result<Vec<f64>> {
        let module = regression()?;
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        let sgd = SgdOptions {
            lr: 0.1,
            ..Default::default()
        };
        let optimizer = Optimizer::create_sgd(&shard, &sgd)?;
        let step = Step::create(&shard, &optimizer, &Default::default())?;
        (0..steps)
            .map(|_| Ok(step.run(&regression_data(rank / ranks))?.loss))
            .collect()
    });
    let mut all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    all.remove(0)
}

#[test]
fn a_custom_module_trains_sharded_on_2_ranks() {
    let two = losses(2, 5);
    assert!(two[4] < 0.8 * two[0], "{two:?}");
    for (one, two) in losses(1, 5).iter().zip(&two) {
        assert!((one - two).abs() < 1e-6, "{one} and {two}");
    }
}

/// One input, which it gives to the closure.
fn custom(forward: impl Fn(&Tensor) -> fsdp2::CallbackResult<Tensor> + Send + 'static) -> Module {
    Module::create_custom("Custom", &Default::default(), move |call| {
        forward(call.input(0)?)
    })
    .unwrap()
}

fn scalar() -> Tensor {
    Tensor::from_slice(&[1f32], &[]).unwrap()
}

/// `input * w`, and the number of times that it was computed.
fn counting() -> Result<(Module, Arc<AtomicUsize>)> {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let module = Module::create_custom("Part", &Default::default(), move |forward| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok((forward.input(0)? * forward.parameter(0)?)?.gelu()?)
    })?;
    module.add_parameter("w", &[1], &Default::default())?;
    Ok((module, runs))
}

#[test]
fn modules_chosen_by_path_run_again_in_backward() -> Result<()> {
    let (first, first_runs) = counting()?;
    let (second, second_runs) = counting()?;
    let whole = {
        let (first, second) = (first.duplicate()?, second.duplicate()?);
        Module::create_custom("Whole", &Default::default(), move |forward| {
            Ok(second.forward_one([&first.forward_one([forward.input(0)?])?])?)
        })?
    };
    whole.add_child("first", &first)?;
    whole.add_child("second", &second)?;
    let choose = |paths: &[&str]| {
        whole.checkpoint_activations(&ActivationOptions {
            modules: Chosen::Paths(paths),
            ..Default::default()
        })
    };
    let missing = choose(&["first", "third"]).unwrap_err();
    assert_eq!(missing.status(), Status::NotFound);
    assert!(missing.message().contains("'third'"), "{missing}");
    assert_eq!(choose(&[]).unwrap_err().status(), Status::InvalidArgument);
    choose(&["second"])?;
    whole.forward_one([&scalar()])?.sum()?.backward()?;
    let runs = [first_runs, second_runs].map(|runs| runs.load(Ordering::Relaxed));
    assert_eq!(runs, [1, 2]);
    Ok(())
}

#[test]
fn a_forward_changes_its_buffers() {
    let states = on_ranks(2, |rank, mesh| -> Result<Vec<String>> {
        let module = Module::create_custom("Counts", &Default::default(), |forward| {
            let [count, table] = forward.buffers()?;
            fsdp2::op!("aten::add_.Tensor", count, 1)?;
            Ok(((forward.input(0)? * forward.parameter(0)?)? * table)?.sum()?)
        })?;
        let number = |value: f32| Tensor::from_slice(&[value], &[1]);
        module.add_parameter("weight", &[1], &Default::default())?;
        module.add_buffer("count", &number(5.0)?)?;
        module.add_buffer_not_persistent("table", &number(0.5)?)?;
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        for _ in 0..2 {
            module.forward_one([&number(rank as f32)?])?;
        }
        assert_eq!(module.buffer("count")?.value()?, 7.0);
        assert_eq!(module.buffer("table")?.value()?, 0.5);
        let missing = module.buffer("weight").unwrap_err();
        assert_eq!(missing.status(), Status::NotFound);
        let state = fsdp2::Checkpoint::of(&shard).state(false)?;
        (0..state.count()?).map(|i| state.name(i)).collect()
    });
    for names in states {
        let names = names.unwrap();
        assert!(names.contains(&"model.count".to_string()), "{names:?}");
        assert!(!names.contains(&"model.table".to_string()), "{names:?}");
    }
}

#[test]
fn tied_parameters_are_one() {
    on_ranks(2, |_, mesh| -> Result<()> {
        let part = Module::create_custom("Head", &Default::default(), |forward| {
            Ok((forward.input(0)? * forward.parameter(0)?)?.sum()?)
        })?;
        part.add_parameter("weight", &[4], &Default::default())?;
        let head = part.duplicate()?;
        let module = Module::create_custom("Tied", &Default::default(), move |forward| {
            Ok(head.forward_one([forward.parameter(0)?])?)
        })?;
        module.add_parameter("embed", &[4], &Default::default())?;
        module.add_child("head", &part)?;
        module.tie_parameter("head.weight", "embed")?;
        assert_eq!(module.parameter_count()?, 1);
        assert_eq!(module.parameter_name(0, 1)?, "head.weight");
        let wrong = module.tie_parameter("head.weight", "nothing").unwrap_err();
        assert_eq!(wrong.status(), Status::NotFound);
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        module.forward::<[&Tensor; 0]>([])?.remove(0).backward()?;
        let weight: Vec<f32> = shard.parameter(0, Which::Full)?.read()?;
        let gradient: Vec<f32> = shard.parameter(0, Which::FullGrad)?.read()?;
        for (weight, gradient) in weight.iter().zip(gradient) {
            assert_eq!(2.0 * weight, gradient); // of w^2: both places count
        }
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn an_error_in_a_forward_callback_reaches_the_caller() {
    let module = custom(|_| Err("the disk is on fire".into()));
    let error = module.forward([&scalar()]).unwrap_err();
    assert_eq!(error.status(), Status::Callback);
    assert!(error.message().contains("the disk is on fire"), "{error}");
    assert_eq!(error.source().unwrap().to_string(), "the disk is on fire");

    let module = custom(|_| Ok(fsdp2::op!("aten::relu", "text")?));
    let error = module.forward([&scalar()]).unwrap_err();
    let inner: &fsdp2::Error = error.source().unwrap().downcast_ref().unwrap();
    assert_eq!(inner.status(), Status::InvalidArgument);
    assert_eq!(inner.function(), "fsdp2_op_call");

    let error = module.forward::<[&Tensor; 0]>([]).unwrap_err();
    assert!(error.message().contains("expected an input 0"), "{error}");

    let module = custom(|_| Err(fsdp2::Error::new(Status::OutOfMemory, "too large").into()));
    let error = module.forward([&scalar()]).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    assert!(error.source().unwrap().to_string().contains("too large"));
}

#[test]
fn a_panic_in_a_forward_callback_reaches_the_caller() {
    let inner = custom(|x| panic!("out of {}", x.value()?));
    let part = inner.duplicate().unwrap();
    let outer = custom(move |x| Ok(inner.forward_one([x])?));
    outer.add_child("inner", &part).unwrap();
    let error = outer.forward([&scalar()]).unwrap_err();
    assert_eq!(error.status(), Status::Callback);
    assert!(error.message().contains("out of 1"), "{error}");
    let panic: &Panic = error
        .source()
        .unwrap()
        .source()
        .unwrap()
        .downcast_ref()
        .unwrap();
    assert_eq!(panic.text(), "out of 1");
    let payload = error.into_panic().unwrap();
    assert_eq!(payload.downcast_ref::<String>().unwrap(), "out of 1");

    struct Payload(i32);
    let module = custom(|_| std::panic::panic_any(Payload(42)));
    let payload = module
        .forward([&scalar()])
        .unwrap_err()
        .into_panic()
        .unwrap();
    assert_eq!(payload.downcast_ref::<Payload>().unwrap().0, 42);
}

#[test]
fn an_error_on_one_rank_reaches_the_others() {
    let errors = on_ranks(2, |rank, mesh| {
        let module = custom(move |x| match rank {
            1 => Err("only here".into()),
            _ => Ok(x.exp()?),
        });
        module
            .add_parameter("weight", &[4], &Default::default())
            .unwrap();
        let shard = Shard::create(&module, &mesh, &Default::default()).unwrap();
        let optimizer = Optimizer::create_sgd(&shard, &Default::default()).unwrap();
        let step = Step::create(&shard, &optimizer, &Default::default()).unwrap();
        let x = scalar();
        x.set_requires_grad(true).unwrap();
        step.run([&x]).unwrap_err()
    });
    assert_eq!(errors[0].status(), Status::PeerFailed);
    assert_eq!(errors[1].status(), Status::Callback);
    for error in &errors {
        assert!(error.message().contains("only here"), "{error}");
    }
}

#[test]
fn a_closure_is_dropped_with_its_module() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("also in drop");
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let held = Dropped(drops.clone());
    let module = custom(move |x| {
        let _ = &held;
        Ok(x.duplicate()?)
    });
    let second = module.duplicate().unwrap();
    drop(module);
    second.forward([&scalar()]).unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(second);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn hooks_see_gradients_and_fail_calls() {
    on_ranks(2, |rank, mesh| -> Result<()> {
        let module = regression()?;
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (ready, reduced) = (seen.clone(), seen.clone());
        shard.set_gradient_ready("", true, move |info, gradient| {
            gradient.info()?;
            ready.lock().unwrap().push(info.parameter.to_string());
            Ok(())
        })?;
        shard.set_all_reduce_hook("", move |info, gradients| {
            reduced
                .lock()
                .unwrap()
                .push(format!("unit '{}'", info.unit));
            gradients.write(&vec![1f32; gradients.shape()?[0] as usize])?;
            Ok(())
        })?;
        module.forward_one(&regression_data(rank))?.backward()?;
        assert_eq!(*seen.lock().unwrap(), ["unit ''", "weight", "bias"]);
        let bias = shard.parameter_index("bias")?;
        assert_eq!(
            shard.parameter(bias, Which::FullGrad)?.read::<f32>()?,
            [1.0; 3]
        );
        shard.remove_all_reduce_hook("")?;
        shard.set_gradient_ready("", true, |_, _| Err("no more".into()))?;
        let error = module
            .forward_one(&regression_data(rank))?
            .backward()
            .unwrap_err();
        assert!(error.message().contains("no more"), "{error}");
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn an_extension_changes_what_travels() {
    let losses = on_ranks(2, |rank, mesh| -> Result<[f64; 2]> {
        let module = regression()?;
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        shard.set_all_gather_extension(
            "",
            |info, chunk| {
                assert_eq!(info.shard_ranks, 2);
                Ok(chunk.to_dtype(fsdp2::Dtype::Bf16)?)
            },
            |info, pieces, chunks| {
                let whole = pieces.to_dtype(info.compute_dtype)?;
                chunks.write(&whole.read::<f32>()?)?;
                Ok(())
            },
        )?;
        let rounded = module.forward_one(&regression_data(rank))?.value()?;
        shard.reset()?;
        shard.remove_all_gather_extension("")?;
        Ok([
            rounded,
            module.forward_one(&regression_data(rank))?.value()?,
        ])
    });
    for losses in losses {
        let [rounded, exact] = losses.unwrap();
        assert!(
            rounded != exact && (rounded - exact).abs() < 0.01,
            "{rounded}, {exact}"
        );
    }
}

#[test]
fn a_closure_chooses_the_dim_to_shard_on() {
    on_ranks(2, |_, mesh| {
        let module = regression().unwrap();
        let options = |dim: fn(&str) -> fsdp2::CallbackResult<i32>| fsdp2::ShardOptions {
            shard_dim: Some(Arc::new(move |info| dim(info.parameter))),
            ..Default::default()
        };
        let error = Shard::create(&module, &mesh, &options(|_| Err("no idea".into()))).unwrap_err();
        assert_eq!(error.source().unwrap().to_string(), "no idea");
        let dims = options(|name| Ok(if name == "weight" { -1 } else { 0 }));
        let shard = Shard::create(&module, &mesh, &dims).unwrap();
        let info = shard
            .parameter_info(shard.parameter_index("weight").unwrap())
            .unwrap();
        assert_eq!((info.shard_dim, info.local_shape), (1, vec![3, 2]));
    });
}

#[test]
fn kept_buffers_are_given_back() {
    on_ranks(2, |rank, mesh| {
        let module = regression().unwrap();
        let options = ShardOptions {
            keep_buffers: true,
            ..Default::default()
        };
        let shard = Shard::create(&module, &mesh, &options).unwrap();
        let loss = module.forward_one(&regression_data(rank)).unwrap();
        loss.backward().unwrap();
        assert!(shard.stats().unwrap().kept_bytes > 0);
        shard.release_buffers().unwrap();
        assert_eq!(shard.stats().unwrap().kept_bytes, 0);
    });
}
