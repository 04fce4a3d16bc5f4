//! Runs that are saved, resumed and looked at; states.

mod common;

use std::fs;
use std::path::Path;

use common::{directory, llama_on, on_ranks, tiny_tokens};
use fsdp2::checkpoint::offline;
use fsdp2::{
    AdamwOptions, Checkpoint, CheckpointFormat, LoadOptions, Loader, Mesh, Module, Optimizer,
    Result, SaveOptions, Shard, State, Status, Step, Tensor,
};

struct Run {
    shard: Shard,
    optimizer: Optimizer,
    step: Step,
    loader: Loader,
    _module: Module,
}

impl Run {
    fn on(mesh: &Mesh) -> Result<Self> {
        let (module, shard) = llama_on(mesh);
        let adamw = AdamwOptions {
            lr: 3e-3,
            ..Default::default()
        };
        let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
        Ok(Self {
            step: Step::create(&shard, &optimizer, &Default::default())?,
            loader: tiny_tokens(mesh),
            shard,
            optimizer,
            _module: module,
        })
    }

    fn losses(&self, n: usize) -> Result<Vec<f64>> {
        (0..n)
            .map(|_| Ok(self.step.run(&self.loader.next()?)?.loss))
            .collect()
    }

    fn checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint::of(&self.shard)
            .optimizer(&self.optimizer)
            .step(&self.step)
            .loader(&self.loader)
    }
}

fn all<R>(results: Vec<Result<R>>) -> Vec<R> {
    results.into_iter().map(Result::unwrap).collect()
}

#[test]
fn checkpoint_saved_on_2_ranks_resumes_with_the_same_loss_on_1() {
    let series = directory("resume");
    let path = series.join("step-00000002");
    let background = SaveOptions {
        background: true,
        ..Default::default()
    };
    offline::check_path(&path, &background).unwrap();
    let expected = all(on_ranks(2, |_, mesh| {
        let run = Run::on(&mesh)?;
        run.losses(2)?;
        run.checkpoint().prepare()?;
        run.checkpoint().save(&path, &background)?;
        run.checkpoint().wait()?;
        assert!(run.checkpoint().poll()?);
        run.losses(2)
    }));
    let resumed = all(on_ranks(1, |_, mesh| {
        let run = Run::on(&mesh)?;
        assert_eq!(
            run.checkpoint().report().unwrap_err().status(),
            Status::WrongState
        );
        run.checkpoint().load(&series, &Default::default())?;
        let report = run.checkpoint().report()?;
        assert!(report.contains("\"step\":2"), "{report}");
        assert_eq!((run.step.position()?, run.loader.position()?), (2, 2));
        run.losses(2)
    }));
    for (expected, resumed) in expected[0].iter().zip(&resumed[0]) {
        assert!((expected - resumed).abs() < 2e-5, "{expected}, {resumed}");
    }
    look_at(&series, &path);
    fs::remove_dir_all(series).unwrap();
}

fn look_at(series: &Path, path: &Path) {
    assert_eq!(offline::find(series).unwrap(), path);
    offline::verify(path).unwrap();
    offline::rebuild_manifest(path).unwrap();
    let contents = offline::inspect(path).unwrap();
    assert!(
        contents.contains("model.model.embed_tokens.weight"),
        "{contents}"
    );
    let options = offline::ConvertOptions {
        format: CheckpointFormat::Safetensors,
        model_only: true,
        ..Default::default()
    };
    let file = series.join("model.safetensors");
    offline::convert(path, &file, &options).unwrap();
    assert!(offline::inspect(&file).unwrap().contains("lm_head"));
    let error = offline::find(series.join("nothing")).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
}

#[test]
fn a_whole_model_goes_out_and_in() {
    let out = directory("whole");
    let losses = all(on_ranks(2, |rank, mesh| {
        let run = Run::on(&mesh)?;
        run.losses(1)?;
        let checkpoint = Checkpoint::of(&run.shard);
        checkpoint.save_full(out.join("model.safetensors"))?;
        checkpoint.save_pretrained(out.join("model"))?;
        let state = run.checkpoint().state(false)?.gather(true)?;
        let expected = run.losses(1)?;
        checkpoint.load_full(out.join("model.safetensors"))?;
        let other = Run::on(&mesh)?;
        let from_rank0 = LoadOptions {
            from_rank0: true,
            ..Default::default()
        };
        let state = (rank == 0).then_some(&state);
        other.checkpoint().set_state(state, &from_rank0)?;
        let found = other.losses(1)?;
        assert!((expected[0] - found[0]).abs() < 1e-6);
        Ok(found)
    }));
    assert_eq!(losses[0], losses[1]);
    assert!(Module::from_pretrained(out.join("model"), &Default::default()).is_ok());
    fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_state_is_cut_and_gathered() {
    let out = directory("state");
    all(on_ranks(2, |rank, mesh| -> Result<()> {
        let state = State::create(&mesh)?;
        let chunk = Tensor::from_slice(&[rank as f32; 2], &[1, 2])?;
        state.add_chunk("cut", &[2, 2], &[i64::from(rank), 0], &chunk)?;
        state.add_tensor("whole", &Tensor::from_slice(&[5i64], &[])?)?;
        state.add_value("note", "[1, \"two\"]")?;
        assert_eq!((state.count()?, state.name(0)?), (3, "cut".to_string()));
        assert_eq!((state.info()?.n_tensors, state.info()?.n_values), (2, 1));
        assert_eq!(state.value("note")?, "[1,\"two\"]");
        let whole = state.gather(false)?;
        assert_eq!(whole.tensor("cut")?.read::<f32>()?, [0.0, 0.0, 1.0, 1.0]);
        state.save(out.join("state"), &Default::default())?;
        chunk.write(&[9f32, 9.0])?;
        state.load(out.join("state"))?;
        assert_eq!(chunk.read::<f32>()?, [rank as f32; 2]);
        let error = state.add_chunk("wrong", &[2, 2], &[0], &chunk).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        Ok(())
    }));
    fs::remove_dir_all(out).unwrap();
}
