//! Operators by name, as methods and as signs; gradients; arrays.

use fsdp2::op::{Output, Value};
use fsdp2::{no_grad, op, run_backward, Dtype, Generator, Result, Scope, Status, Tensor};

fn vector(elements: &[f32]) -> Tensor {
    Tensor::from_slice(elements, &[elements.len() as i64]).unwrap()
}

#[test]
fn an_operator_by_name_with_autograd() -> Result<()> {
    let x = vector(&[1.0, 2.0, 3.0]);
    x.set_requires_grad(true)?;
    let y = op!("aten::sum", &op!("aten::mul.Tensor", &x, &x)?)?;
    assert_eq!(y.value()?, 14.0);
    y.backward()?;
    assert_eq!(x.grad()?.read::<f32>()?, [2.0, 4.0, 6.0]);
    assert_eq!(y.backward().unwrap_err().status(), Status::WrongState);
    assert_eq!(
        op::schema("aten::relu")?,
        "aten::relu(Tensor self) -> Tensor"
    );
    Ok(())
}

#[test]
fn random_numbers_follow_from_the_generator() -> Result<()> {
    let draw =
        |generator: &Generator| op!("aten::randn.generator", &[4i64], generator)?.read::<f32>();
    let (a, b) = (Generator::create(7)?, Generator::create(7)?);
    assert_eq!(draw(&a)?, draw(&b)?);
    let state = a.state()?;
    let expected = draw(&a)?;
    let other = Generator::create(8)?;
    other.set_state(&state)?;
    assert_eq!(draw(&other.duplicate()?)?, expected);
    let error = a.set_state(&vector(&[1.0])).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    Ok(())
}

#[test]
fn a_wrong_argument_of_an_operator_quotes_the_schema() {
    let error = op!("aten::relu", "text").unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    let said = format!("{} {}", error.message(), error.detail());
    assert!(said.contains("aten::relu(Tensor self) -> Tensor"), "{said}");
    assert_eq!(op!("aten::no_such").unwrap_err().status(), Status::NotFound);
}

#[test]
fn operators_take_and_give_every_kind() -> Result<()> {
    let x = Tensor::from_slice(&[3f32, 1.0, 2.0, 6.0, 5.0, 4.0], &[2, 3])?;
    let outputs = op::call("aten::max.dim", &[(&x).into(), 1.into()])?;
    let [values, indices] = <[Output; 2]>::try_from(outputs).unwrap();
    assert_eq!(values.tensor()?.read::<f32>()?, [3.0, 6.0]);
    assert_eq!(indices.tensor()?.read::<i64>()?, [0, 0]);
    let rows = op::call("aten::unbind.int", &[(&x).into()])?;
    assert_eq!(rows.len(), 2);
    let bytes = Tensor::from_slice(&[0u8; 300], &[300])?;
    assert_eq!(op::call("aten::unbind.int", &[(&bytes).into()])?.len(), 300);
    assert_eq!(
        op::call("aten::equal", &[(&x).into(), (&x).into()])?,
        [Output::Bool(true)]
    );
    assert!(op!("aten::equal", &x, &x)
        .unwrap_err()
        .message()
        .contains("Bool(true)"));
    assert_eq!(
        op!("aten::max.dim", &x, 1).unwrap_err().status(),
        Status::BufferTooSmall
    );
    let zeros = op!("aten::zeros", &[2i64, 2], Dtype::F64, Value::None, "cpu")?;
    assert_eq!(zeros.info()?.dtype, Dtype::F64);
    let both = Tensor::cat(&[&x, &x], 0)?;
    assert_eq!(both.shape()?, [4, 3]);
    let none: Option<&Tensor> = None;
    let picked = op!(
        "aten::index.Tensor",
        &x,
        &[none, Some(&Tensor::from_slice(&[2i64], &[1])?)]
    )?;
    assert_eq!(picked.read::<f32>()?, [2.0, 4.0]);
    let halves = op!(
        "aten::upsample_nearest1d.vec",
        &x.unsqueeze(0)?,
        Value::None,
        &[2.0]
    )?;
    assert_eq!(halves.shape()?, [1, 2, 6]);
    Ok(())
}

#[test]
fn signs_take_tensors_numbers_and_results() -> Result<()> {
    let (x, y) = (vector(&[1.0, 2.0]), vector(&[3.0, 5.0]));
    assert_eq!((&x + &y)?.read::<f32>()?, [4.0, 7.0]);
    assert_eq!((&x * &y - &x + &x)?.read::<f32>()?, [3.0, 10.0]);
    assert_eq!((&x - &y / &x)?.read::<f32>()?, [-2.0, -0.5]);
    assert_eq!((&(&x * 2)? + 0.5)?.read::<f32>()?, [2.5, 4.5]);
    assert_eq!((-&x)?.read::<f32>()?, [-1.0, -2.0]);
    assert_eq!((&x + x.exp()?.log())?.sum()?.value()?.round(), 6.0);
    assert!((&x + &vector(&[1.0, 2.0, 3.0])).is_err());
    Ok(())
}

#[test]
fn layers_are_methods() -> Result<()> {
    let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    let ones = vector(&[1.0, 1.0]);
    assert_eq!(x.matmul(&x)?.read::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    assert_eq!(
        x.transpose(0, 1)?.reshape(&[-1])?.read::<f32>()?,
        [1.0, 3.0, 2.0, 4.0]
    );
    assert_eq!(x.softmax(1)?.sum()?.value()?, 2.0);
    assert_eq!(x.mean_dims(&[0], false)?.read::<f32>()?, [2.0, 3.0]);
    assert!(
        x.layer_norm(&[2], Some(&ones), None, 1e-5)?
            .sum()?
            .value()?
            .abs()
            < 1e-5
    );
    assert!(
        (x.rms_norm(&[2], Some(&ones), None)?
            .narrow(0, 0, 1)?
            .pow(2.0)?
            .mean()?
            .value()?
            - 1.0)
            .abs()
            < 1e-5
    );
    for y in [
        x.gelu()?,
        x.silu()?,
        x.relu()?,
        x.tanh()?,
        x.sigmoid()?,
        x.sqrt()?,
    ] {
        assert_eq!(y.shape()?, [2, 2]);
    }
    let rows = x.embedding(&Tensor::from_slice(&[1i64, 1, 0], &[3])?)?;
    assert_eq!(rows.read::<f32>()?, [3.0, 4.0, 3.0, 4.0, 1.0, 2.0]);
    let loss = x.cross_entropy(&Tensor::from_slice(&[1i64, 0], &[2])?)?;
    assert!((loss.value()? - (0.313_261_7 + 1.313_261_7) / 2.0).abs() < 1e-5);
    let heads = x.view(&[1, 1, 2, 2])?;
    let seen = heads.scaled_dot_product_attention(&heads, &heads, None, true)?;
    assert_eq!(&seen.read::<f32>()?[..2], &[1.0, 2.0]);
    assert_eq!(x.to_dtype(Dtype::I64)?.read::<i64>()?, [1, 2, 3, 4]);
    Ok(())
}

#[test]
fn no_grad_records_nothing() -> Result<()> {
    let x = vector(&[1.0]);
    x.set_requires_grad(true)?;
    assert!(!no_grad(|| x.exp())?.info()?.requires_grad);
    let unwound = std::panic::catch_unwind(|| no_grad(|| panic!("on purpose")));
    assert!(unwound.is_err());
    assert!(x.exp()?.info()?.requires_grad);
    Ok(())
}

#[test]
fn backward_runs_from_several_tensors() -> Result<()> {
    let x = vector(&[1.0, 2.0]);
    x.set_requires_grad(true)?;
    let (y, z) = ((&x * 3)?, x.sum()?);
    let start = vector(&[1.0, 10.0]);
    run_backward(&[&y, &z], &[Some(&start), None], true)?;
    assert_eq!(x.grad()?.read::<f32>()?, [4.0, 31.0]);
    run_backward(&[&z], &[], false)?;
    assert_eq!(x.grad()?.read::<f32>()?, [5.0, 32.0]);
    let error = run_backward(&[&y, &z], &[None], false).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    Ok(())
}

#[test]
fn a_scope_keeps_what_is_taken_out() -> Result<()> {
    let scope = Scope::create()?;
    let x = scope.add(vector(&[1.0, 2.0]))?;
    let y = scope.call("aten::exp", &[(&x).into()])?;
    let z = scope.keep(scope.call("aten::sum", &[(&y).into()])?)?;
    drop(scope);
    assert!((z.value()? - 10.107).abs() < 1e-3);
    let (one, other) = (Scope::create()?, Scope::create()?);
    let error = other.keep(one.add(vector(&[1.0]))?).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    Ok(())
}

#[test]
fn a_tensor_prints_as_its_type_and_shape() -> Result<()> {
    let x = Tensor::from_slice(&[1f32; 6], &[2, 3])?;
    let half = x.sum()?.to_dtype(Dtype::Bf16)?;
    assert_eq!(
        format!("{x:?} {half:?}"),
        "Tensor(F32, [2, 3]) Tensor(Bf16, [])"
    );
    Ok(())
}

#[test]
fn arrays_go_in_and_out() -> Result<()> {
    let x = Tensor::from_slice(&[1i32, 2, 3, 4, 5, 6], &[2, 3])?;
    let info = x.info()?;
    assert_eq!((info.dtype, info.n_bytes), (Dtype::I32, 24));
    assert_eq!((info.shape, info.strides), (vec![2, 3], vec![3, 1]));
    assert_eq!(x.transpose(0, 1)?.read::<i32>()?, [1, 4, 2, 5, 3, 6]);
    x.write(&[6i32, 5, 4, 3, 2, 1])?;
    let mut bytes = [0u8; 24];
    x.read_bytes(&mut bytes)?;
    assert_eq!(bytes[..8], [6, 0, 0, 0, 5, 0, 0, 0]);
    let flags = Tensor::from_slice(&[true, false], &[2])?;
    assert_eq!(flags.read::<bool>()?, [true, false]);
    let half = Tensor::from_buffer(&[0x80, 0x3f], Dtype::Bf16, &[])?;
    assert_eq!(half.value()?, 1.0);
    assert_eq!(Tensor::from_slice::<f32>(&[], &[0, 4])?.read::<f32>()?, []);
    for wrong in [
        x.read::<f32>().unwrap_err(),
        x.write(&[1i64]).unwrap_err(),
        x.write(&[1i32]).unwrap_err(),
        x.read_bytes(&mut [0; 8]).unwrap_err(),
        Tensor::from_slice(&[1f32], &[2]).unwrap_err(),
        Tensor::from_slice(&[1f32], &[-1]).unwrap_err(),
    ] {
        assert_eq!(wrong.status(), Status::InvalidArgument, "{wrong}");
    }
    Ok(())
}

#[test]
fn arrays_are_shared_without_a_copy() -> Result<()> {
    let elements = vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let address = elements.as_ptr();
    let x = Tensor::from_vec(elements, &[2, 3])?;
    assert_eq!(x.sum()?.value()?, 21.0);
    // SAFETY: nothing writes to it.
    let view = unsafe { x.view_elements::<f32>()? };
    drop(x);
    assert_eq!((view.as_ptr(), view.len(), view[5]), (address, 6, 6.0));

    let made = Tensor::from_slice(&[1i64, 2], &[2])?;
    let shared = Tensor::from_dlpack(made.to_dlpack()?)?;
    made.write(&[3i64, 4])?;
    assert_eq!(shared.read::<i64>()?, [3, 4]);
    let raw = shared.to_dlpack()?.into_raw();
    // SAFETY: it was taken out of one just now.
    drop(unsafe { fsdp2::DlPack::from_raw(raw) });

    let (x, y) = (Tensor::from_vec(vec![true; 4], &[2, 2])?, vector(&[1.0]));
    y.set_requires_grad(true)?;
    // SAFETY: nothing writes to them.
    unsafe {
        assert_eq!(&*x.view_elements::<bool>()?, &[true; 4]);
        assert_eq!(
            x.view_elements::<f32>().unwrap_err().status(),
            Status::InvalidArgument
        );
        let turned = Tensor::from_vec(vec![0f32; 6], &[2, 3])?.transpose(0, 1)?;
        assert_eq!(
            turned.view_elements::<f32>().unwrap_err().status(),
            Status::InvalidArgument
        );
        let empty = Tensor::from_vec(Vec::<f32>::new(), &[0, 3])?;
        assert_eq!(empty.view_elements::<f32>()?.len(), 0);
    }
    assert_eq!(y.to_dlpack().unwrap_err().status(), Status::WrongState);
    for shape in [&[2i64][..], &[-1, -1], &[i64::MAX, 4]] {
        let error = Tensor::from_vec(vec![0f32; 1], shape).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
    }
    Ok(())
}
