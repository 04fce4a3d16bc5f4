//! Language models, steps, units, plans and meshes.

mod common;

use std::fs;

use common::{golden, llama_on, on_ranks, regression, tiny_llama, tiny_tokens};
use fsdp2::{
    no_grad, AdamwOptions, Algorithm, Backend, Dtype, EventKind, GenerateOptions, Mesh,
    MeshOptions, Module, MuonOptions, Optimizer, PlanOptions, ReduceOp, Reshard, Result, Shard,
    ShardOptions, Status, Step, StepOptions, Tensor, UnitState, Which,
};

fn all<R>(results: Vec<Result<R>>) -> Vec<R> {
    results.into_iter().map(Result::unwrap).collect()
}

/// The losses that PyTorch had, in fp32 on two ranks.
fn pytorchs_losses() -> Vec<f64> {
    let recorded = fs::read_to_string(golden("tiny-llama.json")).unwrap();
    let line = recorded
        .lines()
        .find(|line| line.contains("\"name\": \"fp32\", \"world_size\": 2,"))
        .unwrap();
    let losses = line.split("\"loss\": [").nth(1).unwrap();
    let losses = losses.split(']').next().unwrap();
    losses
        .split(", ")
        .map(|loss| loss.parse().unwrap())
        .collect()
}

#[test]
fn train_prints_pytorchs_losses() {
    let found = all(on_ranks(2, |_, mesh| -> Result<Vec<f64>> {
        let (_module, shard) = llama_on(&mesh);
        let adamw = AdamwOptions {
            lr: 3e-3,
            beta2: 0.95,
            weight_decay: 0.1,
            ..Default::default()
        };
        let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
        let step = Step::create(&shard, &optimizer, &Default::default())?;
        let loader = tiny_tokens(&mesh);
        (0..5)
            .map(|_| Ok(step.run(&loader.next()?)?.loss))
            .collect()
    }));
    for (expected, found) in pytorchs_losses().iter().zip(&found[0]) {
        assert!((found / expected - 1.0).abs() < 5e-6, "{expected}, {found}");
    }
}

#[test]
fn muon_trains_an_mlp_in_tiles() {
    all(on_ranks(2, |_, mesh| -> Result<()> {
        let (module, shard) = llama_on(&mesh);
        assert_eq!(module.tile_mlps(3)?, 2);
        assert!(module.tile_mlps(0).is_err());
        let options = MuonOptions {
            newton_schulz_steps: 4,
            lr: 1e-2,
            ..Default::default()
        };
        let optimizer = Optimizer::create_muon(&shard, &options)?;
        optimizer.exempt_named_from_decay(&["lm_head.*", "model.norm.weight"])?;
        optimizer.exempt_classes_from_decay(&["LlamaMLP"])?;
        optimizer.scale_named_lr(&["*.q_proj.weight", "*.k_proj.weight"], 0.5)?;
        let group = optimizer.group_info(0)?;
        assert_eq!(
            (group.newton_schulz_steps, group.matched_adamw_rms),
            (4, 0.2)
        );
        let batch = tiny_tokens(&mesh).next()?;
        let before = module.forward_one(&batch)?;
        before.backward()?;
        optimizer.run()?;
        shard.zero_grad()?;
        let after = no_grad(|| module.forward_one(&batch))?;
        assert!(after.value()? < before.value()?);
        let info = optimizer.info()?;
        assert_eq!(info.algorithm, Algorithm::Muon);
        assert!(info.n_received_bytes > 0 && info.n_groups == 5);
        Ok(())
    }));
}

#[test]
fn the_pieces_of_a_step_make_a_step() {
    all(on_ranks(2, |_, mesh| -> Result<()> {
        let (module, shard) = llama_on(&mesh);
        let adamw = AdamwOptions::default();
        let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
        optimizer.exempt_from_decay(true, true)?;
        optimizer.add_adamw_group(&["lm_head.weight"], &adamw)?;
        optimizer.scale_lr("*.q_proj.weight", 0.5)?;
        optimizer.set_group_lr(1, 1e-4)?;
        optimizer.set_group_weight_decay(1, 0.2)?;
        optimizer.set_lr(2e-3)?;
        let info = optimizer.info()?;
        assert_eq!((info.algorithm, info.n_parameters), (Algorithm::Adamw, 21));
        let halved = AdamwOptions {
            state_dtype: Some(Dtype::Bf16),
            ..Default::default()
        };
        let full = Optimizer::create_adamw(&shard, &halved)?
            .info()?
            .n_full_bytes;
        assert_eq!(2 * (full - 4 * 21), info.n_full_bytes - 4 * 21);
        let plan = PlanOptions {
            optimizer_bytes: full,
            ..Default::default()
        };
        assert_eq!(shard.plan_info(&plan)?.optimizer_bytes, full);
        assert!(info.n_groups >= 3 && optimizer.lr()? == 2e-3);
        let n: i32 = (0..info.n_groups as usize)
            .map(|group| {
                let n = optimizer.group_parameters(group).unwrap().len() as i32;
                assert_eq!(optimizer.group_info(group).unwrap().n_parameters, n);
                n
            })
            .sum();
        assert_eq!(n, 21);

        let batch = tiny_tokens(&mesh).next()?;
        let before = module.forward_one(&batch)?;
        before.backward()?;
        assert!(!shard.grad_overflow()?);
        shard.scale_grad(2.0)?;
        let norm = shard.grad_norm(2.0)?;
        assert_eq!(shard.clip_grad_norm(0.5, 2.0)?, norm);
        assert!((shard.grad_norm(2.0)? - 0.5).abs() < 1e-4);
        optimizer.run()?;
        shard.zero_grad()?;
        let after = no_grad(|| module.forward_one(&batch))?;
        assert!(after.value()? < before.value()?);
        assert!(after.backward().is_err());

        let embedding = shard.parameter_index("model.embed_tokens.weight")?;
        assert_eq!(
            shard.parameter_name(embedding, 0)?,
            "model.embed_tokens.weight"
        );
        let moment = optimizer.state(embedding, "exp_avg", Which::Full)?;
        assert_eq!(moment.shape()?, [384, 64]);
        let whole = shard.parameter(embedding, Which::Full)?;
        let rows = shard.parameter(embedding, Which::Local)?;
        assert_eq!((whole.shape()?[0], rows.shape()?[0]), (384, 192));
        let error = shard.parameter(embedding, Which::LocalGrad).unwrap_err();
        assert_eq!(error.status(), Status::NotFound);
        Ok(())
    }));
}

#[test]
fn steps_have_schedules_and_positions() {
    all(on_ranks(1, |_, mesh| -> Result<()> {
        let (_module, shard) = llama_on(&mesh);
        let optimizer = Optimizer::create_sgd(&shard, &Default::default())?;
        optimizer.add_sgd_group(&["lm_head.weight"], &Default::default())?;
        let options = StepOptions {
            schedule: fsdp2::Schedule::Linear,
            warmup_steps: 2,
            total_steps: 4,
            max_grad_norm: 1.0,
            loss_chunk: 64,
            ..Default::default()
        };
        let step = Step::create(&shard, &optimizer, &options)?;
        let loader = tiny_tokens(&mesh);
        let [tokens, labels] = loader.next()?;
        assert!(
            tiny_tokens(&mesh).positions().is_err(),
            "there is no batch yet"
        );
        let positions = loader.positions()?;
        assert_eq!(positions.info()?.shape, tokens.info()?.shape);
        let rows = tokens.info()?.shape[0];
        assert_eq!(loader.boundaries()?.info()?.shape, [rows + 1]);
        assert!(loader.images()?.is_none() && loader.info()?.n_images == 0);
        assert!(loader.videos()?.is_none() && loader.info()?.n_video_inputs == 0);
        let result = step.run([Some(&tokens), Some(&labels), Some(&positions), None])?;
        assert!(
            result.applied && result.finite && result.lr == 5e-4,
            "{result:?}"
        );
        assert_eq!((result.n_tokens, result.n_labels), (256, 256));
        step.set_position(10)?;
        loader.set_position(3)?;
        assert_eq!((step.position()?, loader.position()?), (10, 3));
        Ok(())
    }));
}

#[test]
fn a_language_model_alone() -> Result<()> {
    let module = tiny_llama();
    let info = module.info()?;
    assert_eq!((info.n_parameters, info.vocab_size), (21, 384));
    let tokens = Tensor::from_slice(&[1i64, 2, 3, 4], &[1, 4])?;
    assert_eq!(module.forward_one([&tokens])?.shape()?, [1, 4, 384]);
    module.check_inputs([&tokens, &tokens])?;
    assert!(module
        .check_inputs([&module.forward_one([&tokens])?])
        .is_err());
    let hidden = Tensor::from_slice(&[0f32; 64], &[1, 1, 64])?;
    let logits = module.forward_submodule("lm_head", [&hidden])?;
    assert_eq!(logits[0].shape()?, [1, 1, 384]);
    let greedy = GenerateOptions {
        max_new_tokens: 3,
        temperature: 0.0,
        ..Default::default()
    };
    assert_eq!(module.generate(&[1, 2], &greedy)?.len(), 3);
    module.train(false)?;
    assert!(!module.is_training()?);
    module.set_requires_grad(&["model.layers.0"], false)?;
    let frozen = module.parameter_index("model.layers.0.mlp.up_proj.weight")?;
    let info = module.parameter_info(frozen)?;
    assert!(!info.requires_grad && !info.is_sharded && !info.has_grad);
    assert_eq!(
        module.parameter_name(frozen, 0)?,
        "model.layers.0.mlp.up_proj.weight"
    );
    assert_eq!(module.parameter(frozen, Which::Local)?.shape()?, info.shape);
    assert_eq!(module.parameter_count()?, 21);
    module.checkpoint_activations(&Default::default())?;
    module.zero_grad()?;
    let error = Module::from_exported("/no/such.pt2", &Default::default()).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    Ok(())
}

#[test]
fn units_are_described_steered_and_planned() {
    all(on_ranks(2, |_, mesh| -> Result<()> {
        let (_module, shard) = llama_on(&mesh);
        let layer = "model.layers.1";
        let index = shard.unit_index(layer)?;
        assert_eq!(shard.unit_name(index)?, layer);
        shard.clear_events()?;
        shard.unshard(layer, false)?;
        shard.wait_unshard(layer)?;
        assert_eq!(shard.unit_info(index)?.state, UnitState::Unsharded);
        shard.reshard(layer)?;
        let kinds: Vec<_> = shard
            .events()?
            .iter()
            .map(|event| (event.kind, event.unit))
            .collect();
        let expected = [EventKind::AllGather, EventKind::Unshard, EventKind::Reshard];
        assert_eq!(kinds, expected.map(|kind| (kind, index)));
        assert_eq!(shard.stats()?.all_gathers, 1);
        shard.reset_stats()?;
        assert_eq!(shard.stats()?.all_gathers, 0);
        assert!(shard.describe()?.contains(layer));
        assert_eq!(shard.unit_count()?, 3);

        let before = shard.unit_settings(layer)?;
        shard.set_requires_gradient_sync(layer, false, true)?;
        shard.set_requires_all_reduce(layer, true, true)?;
        shard.set_reshard_after_forward(layer, false, true)?;
        shard.set_reshard_after_backward(layer, false, true)?;
        shard.set_unshard_in_backward(layer, true)?;
        shard.set_reduce_unused_parameters(layer, true, false)?;
        shard.set_force_sum_reduction(layer, true)?;
        shard.set_gradient_divide_factor(layer, 3.0)?;
        shard.set_allocate_memory_from_process_group(layer, false)?;
        let error = shard
            .set_allocate_memory_from_process_group(layer, true)
            .unwrap_err();
        assert!(error.message().contains("no memory of its own"), "{error}");
        let changed = shard.unit_settings(layer)?;
        assert_eq!(changed.reshard_after_forward, Reshard::Never);
        assert_eq!(changed.gradient_divide_factor, 3.0);
        assert!(!changed.requires_gradient_sync && changed.reduce_unused_parameters);
        shard.set_unit_settings(layer, &before)?;
        assert_eq!(shard.unit_settings(layer)?, before);
        shard.set_is_last_backward(false)?;
        assert!(!shard.is_last_backward()?);
        shard.set_is_last_backward(true)?;
        shard.finalize_backward()?;
        shard.set_forward_prefetch("model.layers.0", &[layer])?;
        shard.set_backward_prefetch(layer, &["model.layers.0"])?;
        assert_eq!(shard.forward_prefetch("model.layers.0")?, [index]);
        assert_eq!(shard.backward_prefetch(layer)?.len(), 1);
        shard.reset()?;

        let plan = shard.plan_info(&Default::default())?;
        assert_eq!(plan.optimizer_bytes, 2 * plan.gradient_bytes);
        assert!(shard.plan_describe(&Default::default())?.contains(layer));
        Ok(())
    }));
}

#[test]
fn the_memory_of_a_step_is_planned() -> Result<()> {
    let shapes = MeshOptions {
        backend: Backend::Fake,
        world_size: 4,
        device_type: Some("meta".into()),
        ..Default::default()
    };
    let deferred = ShardOptions {
        defer_values: true,
        ..Default::default()
    };
    let mesh = Mesh::create(&shapes)?;
    let shard = Shard::create(&tiny_llama(), &mesh, &deferred)?;
    let memory_of = |rows: usize, micro_batches| {
        let tokens = Tensor::from_slice(&vec![0_i64; rows * 8], &[rows as i64, 8])?;
        shard.plan_memory([&tokens, &tokens], micro_batches, &Default::default())
    };
    let (small, large) = (memory_of(1, 1)?, memory_of(64, 1)?);
    let parts = small.model_bytes + small.activation_bytes + small.optimizer_bytes;
    assert_eq!(small.peak_bytes, parts);
    assert!(large.activation_bytes > 16 * small.activation_bytes);
    let refused = memory_of(1, 0).unwrap_err().status();
    assert_eq!(refused, Status::InvalidArgument);
    let tokens = Tensor::from_slice(&[0_i64; 8], &[1, 8])?;
    let choose = |most| shard.plan_choose_reshard([&tokens, &tokens], 1, &Default::default(), most);
    let all = choose(1 << 40)?;
    assert!(all.n_kept == 2 && all.resharded_peak_bytes == small.peak_bytes);
    let kept = shard.unit_settings("model.layers.0")?;
    assert!(kept.reshard_after_forward == Reshard::Never);
    assert_eq!(choose(1).unwrap_err().status(), Status::OutOfMemory);
    Ok(())
}

#[test]
fn modules_are_wrapped_by_hand_and_by_rule() {
    all(on_ranks(2, |_, mesh| -> Result<()> {
        let module = regression()?;
        let inner = regression()?;
        module.add_child("inner", &inner)?;
        Shard::make_unit(&module, &mesh, &["inner"], &Default::default())?;
        let options = ShardOptions {
            defer_values: true,
            ignored_names: vec!["bias".to_string()],
            ..Default::default()
        };
        let shard = Shard::create(&module, &mesh, &options)?;
        shard.load_values()?;
        assert_eq!((shard.unit_count()?, shard.parameter_count()?), (2, 3));
        assert!(shard.mesh()?.is_equal(&mesh)?);
        shard.cast_parameters(fsdp2::Dtype::Bf16)?;
        assert_eq!(shard.parameter_info(0)?.dtype, fsdp2::Dtype::Bf16);

        let llama = tiny_llama();
        let by_rule = ShardOptions {
            wrap: fsdp2::Wrap::Kinds,
            wrap_kinds: vec!["LlamaMLP".to_string()],
            ..Default::default()
        };
        Shard::make_units(&llama, &mesh, &by_rule)?;
        let wrong = ShardOptions {
            wrap: fsdp2::Wrap::Kinds,
            wrap_kinds: vec!["Nothing".to_string()],
            ..Default::default()
        };
        assert_eq!(
            Shard::create(&llama, &mesh, &wrong).unwrap_err().status(),
            Status::NotFound
        );
        Ok(())
    }));
    let mut mesh = MeshOptions::default();
    let mut shard = ShardOptions::default();
    shard
        .apply_strategy("hybrid_shard_zero2", 2, &mut mesh)
        .unwrap();
    assert_eq!((mesh.fsdp_size, mesh.shape.len()), (2, 0));
    assert_eq!(shard.reshard_after_forward, Reshard::Never);
    assert!(shard.apply_strategy("NO_SUCH", 2, &mut mesh).is_err());
}

#[test]
fn meshes_have_dims_groups_and_collectives() {
    all(on_ranks(4, |rank, job| -> Result<()> {
        let mesh = job.create_in(&MeshOptions {
            shape: vec![2, -1],
            names: vec!["ddp".to_string(), "fsdp".to_string()],
            ..Default::default()
        })?;
        let info = mesh.info()?;
        assert_eq!(
            (info.backend, info.rank, info.world_size),
            (Backend::Thread, rank, 4)
        );
        assert_eq!(info.shape, [2, 2]);
        assert_eq!(info.coordinate, [i64::from(rank / 2), i64::from(rank % 2)]);
        assert_eq!(
            (mesh.dim_name(1)?, mesh.dim_index("fsdp")?),
            ("fsdp".to_string(), 1)
        );
        assert_eq!(mesh.ranks()?, [0, 1, 2, 3]);
        assert_eq!(mesh.group_ranks(0)?, [rank % 2, rank % 2 + 2]);
        assert_eq!((mesh.group(1)?.size, mesh.group(1)?.rank), (2, rank % 2));
        let row = mesh.submesh(&["fsdp"])?;
        let (root, dims) = row.root()?;
        assert!(root.is_equal(&mesh)? && dims == [1] && root.hash()? == mesh.hash()?);
        let no_device = mesh.device_memory().unwrap_err();
        assert_eq!(no_device.status(), Status::Unsupported);
        assert!(matches!(mesh.choose_dtype()?, Dtype::Bf16 | Dtype::F32));
        assert_eq!(mesh.from_group(1, Some("row"))?.ranks()?, row.ranks()?);
        assert_eq!(
            mesh.flatten(&["ddp", "fsdp"], None)?.dim_name(0)?,
            "ddp_fsdp"
        );
        assert!(mesh.describe()?.starts_with("Mesh(ddp=2, fsdp=2)"));

        mesh.barrier()?;
        let mut values = [f64::from(rank), 1.0];
        mesh.all_reduce(&mut values, ReduceOp::Sum)?;
        assert_eq!(values, [6.0, 4.0]);
        let mine = Tensor::from_slice(&[rank as f32], &[1])?;
        assert_eq!(row.all_gather(0, &mine, 0)?.shape()?, [2]);
        row.all_reduce_tensor(0, &mine, ReduceOp::Max)?;
        assert_eq!(mine.value()?, f64::from(rank / 2 * 2 + 1));
        row.broadcast(0, &mine)?;
        let pair = Tensor::from_slice(&[1f32, 2.0], &[2])?;
        assert_eq!(
            row.reduce_scatter(0, &pair, 0, ReduceOp::Sum)?.value()?,
            [2.0, 4.0][rank as usize % 2]
        );
        let whole = (rank % 2 == 0).then_some(&pair);
        assert_eq!(
            row.scatter(0, whole, 0)?.value()?,
            [1.0, 2.0][rank as usize % 2]
        );
        mesh.agree("seeds", "seed=1")?;
        let error = mesh.agree("ranks", &format!("rank={rank}")).unwrap_err();
        assert!(error.message().contains("rank"), "{error}");
        Ok(())
    }));
}

#[test]
fn another_thread_ends_what_waits() {
    let errors = on_ranks(2, |rank, mesh| {
        if rank == 1 {
            // Rank 0 waits in vain, until another thread of this rank gives up.
            return std::thread::scope(|threads| {
                let waiting = threads.spawn(|| mesh.fail("had enough"));
                waiting.join().unwrap().unwrap();
                mesh.barrier().unwrap_err()
            });
        }
        mesh.barrier().unwrap_err()
    });
    for error in errors {
        assert_eq!(error.status(), Status::PeerFailed);
        assert!(error.message().contains("had enough"), "{error}");
    }
}
