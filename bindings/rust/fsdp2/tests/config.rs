//! Configurations of runs: the values that they give, and what ranks compare of them.

mod common;

use common::{golden, on_ranks};
use fsdp2::{Config, ConfigOptions, Result, Status};

const YAML: &str = "actor_train:
  model_args: {model_name_or_path: models/tiny-llama}
  training_args: {learning_rate: 3.0e-3, max_steps: 3,
                  per_device_train_batch_size: 2, gradient_accumulation_steps: 1}
  strategy_args: {strategy_config: {reshard_after_forward: true}}
";

fn named(name: &str) -> ConfigOptions {
    ConfigOptions {
        name: Some(name.to_string()),
        ..Default::default()
    }
}

#[test]
fn a_configuration_gives_the_values_of_a_run() -> Result<()> {
    let options = ConfigOptions {
        sets: vec!["actor_train.training_args.learning_rate=1.0e-4".to_string()],
        world_size: 4,
        ..named("run.yaml")
    };
    let config = Config::lower(YAML, &options)?;
    assert_eq!(config.value("lr")?, "0.0001");
    assert_eq!(config.value("reshard-after-forward")?, "true");
    assert_eq!(config.value("global_batch")?, "8"); // 2 windows on each of 4 ranks
    assert_eq!(config.value("tokens")?, "");
    let plan = config.to_string();
    assert!(
        plan.contains("# run.yaml:3 actor_train.training_args.max_steps\n"),
        "{plan}"
    );
    let again = Config::lower(&plan, &Default::default())?;
    assert_eq!(again.value("lr")?, "0.0001");
    assert!(config.shared()?.contains("lr=0.0001"));
    Ok(())
}

#[test]
fn mistakes_in_a_configuration_are_told_with_their_place() {
    let wrong = |text: &str, options: &ConfigOptions, message: &str| {
        let error = Config::lower(text, options).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains(message), "{error}");
    };
    let none = ConfigOptions::default();
    wrong(
        "steps: 2\nlrr: 1\n",
        &none,
        "config:2: unknown key lrr; did you mean lr?",
    );
    let critic = ConfigOptions {
        role: Some("critic".to_string()),
        ..none.clone()
    };
    wrong(
        YAML,
        &critic,
        "there is no role critic; the roles are actor_train",
    );
    let four = ConfigOptions {
        world_size: 4,
        ..named("run.yaml")
    };
    wrong(
        "world_size: 2\n",
        &four,
        "the configuration is for 2 ranks (run.yaml:1 world_size)",
    );
    let config = Config::lower("lr: 1\n", &none).unwrap();
    assert_eq!(config.value("lrr").unwrap_err().status(), Status::NotFound);
}

#[test]
fn ranks_with_different_configurations_are_told_the_key() {
    for error in on_ranks(2, |rank, mesh| {
        let text = ["lr: 1.0e-3", "\nlr: 2.0e-3"][rank as usize];
        let config = Config::lower(text, &named("run.yaml")).unwrap();
        mesh.agree("options", &config.shared().unwrap())
            .unwrap_err()
    }) {
        assert_eq!(error.status(), Status::InvalidArgument);
        let told = "options: the ranks differ in --lr: rank 0 has 0.001 (";
        assert!(error.message().contains(told), "{error}");
    }
}

#[test]
fn the_objects_of_a_configuration_train_the_same_on_any_ranks() -> Result<()> {
    let text = format!(
        "model: {}\ntokens: {}\nepochs: 1\nthreads: 1\nkeep_memory: false\n",
        golden("models/tiny-llama").display(),
        golden("tokens/tiny-llama.bin").display()
    );
    let config = Config::lower(&text, &Default::default())?;
    config.set_up_process()?;
    config.join_job()?;
    let first_losses = |ranks| {
        on_ranks(ranks, |_, job| -> Result<f64> {
            let mesh = config.make_mesh(&job)?;
            let module = config.make_module()?;
            let loader = config.make_loader(&module, &mesh)?;
            let config = config.settle_epochs(loader.info()?.steps_per_epoch)?;
            let shard = config.make_shard(&module, &mesh)?;
            shard.load_values()?;
            let optimizer = config.make_optimizer(&shard)?;
            let step = config.make_step(&shard, &optimizer)?;
            Ok(step.run(&loader.next()?)?.loss)
        })
    };
    let expected = first_losses(1).remove(0)?;
    for loss in first_losses(2) {
        assert!((loss? - expected).abs() < 1e-5 * expected);
    }
    Ok(())
}
