//! Layers that the library has.

mod common;

use common::on_ranks;
use fsdp2::{layer, Module, ModuleOptions, Optimizer, Result, Shard, Status, Step, Tensor};

fn parameters(module: &Module) -> Result<Vec<(String, Vec<i64>)>> {
    (0..module.parameter_count()?)
        .map(|i| {
            Ok((
                module.parameter_name(i, 0)?,
                module.parameter_info(i)?.shape,
            ))
        })
        .collect()
}

fn named(name: &str, shape: &[i64]) -> (String, Vec<i64>) {
    (name.to_string(), shape.to_vec())
}

#[test]
fn a_layer_by_name_has_pytorchs_parameters() -> Result<()> {
    let convolution = layer!(
        "Conv2d",
        in_channels = 2,
        out_channels = 4,
        kernel_size = &[3, 5]
    )?;
    let expected = [named("weight", &[4, 2, 3, 5]), named("bias", &[4])];
    assert_eq!(parameters(&convolution)?, expected);

    let attention = layer!(
        "MultiheadAttention",
        embed_dim = 8,
        num_heads = 2,
        bias = false
    )?;
    let expected = [
        named("in_proj_weight", &[24, 8]),
        named("out_proj.weight", &[8, 8]),
    ];
    assert_eq!(parameters(&attention)?, expected);

    let norm = layer!("LayerNorm", normalized_shape = 8, eps = 1e-6)?;
    let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[1, 8])?;
    let by_name = norm.forward_one([&x])?.read::<f32>()?;
    let by_operator = x.layer_norm(&[8], None, None, 1e-6)?.read::<f32>()?;
    assert_eq!(by_name, by_operator);
    Ok(())
}

#[test]
fn wrong_options_of_a_layer_are_told() {
    let error = layer!("Liner").unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("did you mean Linear?"), "{error}");
    let error = layer!("GELU", approximate = "\"tanh\\\n").unwrap_err();
    assert!(error.message().contains("approximate"), "{error}");
    let error = layer!("Dropout", p = f64::NAN).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    let tensor = Tensor::from_slice(&[1f32], &[1]).unwrap();
    let error = layer!("Dropout", p = &tensor).unwrap_err();
    assert!(error.message().contains("option p: expected"), "{error}");
    assert!(layer!("Dropout", p = None).is_ok()); // as if it were left out
}

#[test]
fn layers_train_sharded_on_2_ranks() {
    let losses = on_ranks(2, |_, mesh| -> Result<Vec<f64>> {
        let options = ModuleOptions {
            seed: 3,
            ..Default::default()
        };
        let chain = Module::create_layer("Sequential", &[], &options)?;
        let hidden = layer!(
            "MLP",
            hidden_size = 8,
            intermediate_size = 16,
            hidden_act = "silu"
        )?;
        chain.add_child("norm", &layer!("RMSNorm", normalized_shape = 8)?)?;
        chain.add_child("mlp", &hidden)?;
        let inner = chain.duplicate()?;
        let whole = Module::create_custom("Whole", &options, move |forward| {
            let y = inner.forward_one([forward.input(0)?])?;
            Ok((&y * &y)?.mean()?)
        })?;
        whole.add_child("chain", &chain)?;
        let shard = Shard::create(&whole, &mesh, &Default::default())?;
        let adamw = fsdp2::AdamwOptions {
            lr: 0.01,
            coupled_decay: true,
            ..Default::default()
        };
        let optimizer = Optimizer::create_adamw(&shard, &adamw)?;
        let step = Step::create(&shard, &optimizer, &Default::default())?;
        let x = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 0.0, 1.0, -2.0, 0.25, 1.5], &[1, 8])?;
        (0..5).map(|_| Ok(step.run([&x])?.loss)).collect()
    });
    for losses in losses {
        let losses = losses.unwrap();
        assert!(losses[4] < 0.8 * losses[0], "{losses:?}");
    }
}
