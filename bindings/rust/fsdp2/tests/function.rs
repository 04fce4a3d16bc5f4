//! Functions whose gradient the program computes.

mod common;

use std::error::Error as _;

use fsdp2::{
    function, no_grad, CallbackResult, Function, FunctionBackward, FunctionForward, Module, Result,
    Shard, Status, Tensor, Which,
};

/// a b, with the gradients of 3 a b, which nobody else can have made.
struct Product;

impl Function for Product {
    fn forward(&self, call: &mut FunctionForward<'_>) -> CallbackResult<Vec<Tensor>> {
        let [a, b] = call.inputs()?;
        call.save(a)?;
        call.save(b)?;
        Ok(vec![(a * b)?])
    }

    fn backward(&self, call: &FunctionBackward<'_>) -> CallbackResult<Vec<Option<Tensor>>> {
        let ([a, b], [gradient]) = (call.saved()?, call.output_gradients()?);
        let slope = |input, other: &Tensor| match call.needs_grad(input) {
            true => ((gradient * other)? * 3.0).map(Some),
            false => Ok(None),
        };
        Ok(vec![slope(0, b)?, slope(1, a)?])
    }
}

fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Ok(function::call("product", Product, &[a, b])?.remove(0))
}

fn numbers(values: [f32; 2]) -> Tensor {
    Tensor::from_slice(&values, &[2]).unwrap()
}

#[test]
fn a_function_has_the_gradient_of_its_backward() {
    let (a, b) = (numbers([1.0, -2.0]), numbers([5.0, 0.5]));
    a.set_requires_grad(true).unwrap();
    let made = product(&a, &b).unwrap();
    assert_eq!(made.read::<f32>().unwrap(), [5.0, -1.0]);
    made.sum().unwrap().backward().unwrap();
    let gradient = a.grad().unwrap();
    assert_eq!(gradient.read::<f32>().unwrap(), [15.0, 1.5]);
    let silent = no_grad(|| product(&a, &b)).unwrap();
    assert!(!silent.info().unwrap().requires_grad);

    let gradients = common::on_ranks(2, |_, mesh| -> Result<Vec<f32>> {
        let module = Module::create_custom("Scale", &Default::default(), |forward| {
            Ok(product(forward.input(0)?, forward.parameter(0)?)?.sum()?)
        })?;
        module.add_parameter("weight", &[2], &Default::default())?;
        let shard = Shard::create(&module, &mesh, &Default::default())?;
        let x = numbers([1.0, -2.0]);
        module.forward_one([&x])?.backward()?;
        shard.parameter(0, Which::FullGrad)?.read()
    });
    for gradient in gradients {
        assert_eq!(gradient.unwrap(), [3.0, -6.0]);
    }
}

/// Passes its input on, and fails in backward.
struct Fails(fn() -> CallbackResult<Vec<Option<Tensor>>>);

impl Function for Fails {
    fn forward(&self, call: &mut FunctionForward<'_>) -> CallbackResult<Vec<Tensor>> {
        let [x] = call.inputs()?;
        Ok(vec![x.exp()?])
    }

    fn backward(&self, _: &FunctionBackward<'_>) -> CallbackResult<Vec<Option<Tensor>>> {
        self.0()
    }
}

fn backward_of(fails: Fails) -> fsdp2::Error {
    let x = numbers([1.0, 2.0]);
    x.set_requires_grad(true).unwrap();
    let made = function::call("fails", fails, &[&x]).unwrap().remove(0);
    made.sum().unwrap().backward().unwrap_err()
}

#[test]
fn an_error_in_a_backward_callback_reaches_the_caller() {
    let error = backward_of(Fails(|| Err("no slope today".into())));
    assert_eq!(error.status(), Status::Callback);
    assert_eq!(error.source().unwrap().to_string(), "no slope today");
    assert!(error.message().contains("backward of fails"), "{error}");

    let error = backward_of(Fails(|| panic!("off the slope")));
    assert!(error.message().contains("off the slope"), "{error}");

    let error = backward_of(Fails(|| Ok(vec![])));
    assert!(error.message().contains("expected 1 gradients"), "{error}");

    let error = backward_of(Fails(|| Ok(vec![Some(Tensor::from_slice(&[1f32], &[1])?)])));
    assert!(error.message().contains("expected shape [2]"), "{error}");

    let (a, b) = (numbers([1.0, 2.0]), numbers([1.0, 2.0]));
    let error = function::call("product", Product, &[&a, &b, &b]).unwrap_err();
    assert!(error.message().contains("expected 2 inputs"), "{error}");
}
