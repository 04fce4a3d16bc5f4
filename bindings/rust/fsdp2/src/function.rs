//! Functions whose gradient the program computes: what `torch.autograd.Function` is in PyTorch.
//!
//! ```no_run
//! use fsdp2::{function, CallbackResult, Function, FunctionBackward, FunctionForward, Tensor};
//!
//! /// x^3
//! struct Cube;
//!
//! impl Function for Cube {
//!     fn forward(&self, call: &mut FunctionForward<'_>) -> CallbackResult<Vec<Tensor>> {
//!         let [x] = call.inputs()?;
//!         call.save(x)?;
//!         Ok(vec![(x * x * x)?])
//!     }
//!
//!     fn backward(&self, call: &FunctionBackward<'_>) -> CallbackResult<Vec<Option<Tensor>>> {
//!         let ([x], [gradient]) = (call.saved()?, call.output_gradients()?);
//!         Ok(vec![Some(((gradient * (x * x))? * 3.0)?)])
//!     }
//! }
//!
//! # fn main() -> fsdp2::Result<()> {
//! # let x = Tensor::from_slice(&[1f32], &[1])?;
//! let y = function::call("cube", Cube, &[&x])?.remove(0);
//! # Ok(()) }
//! ```

use std::ffi::c_void;

use crate::callback::{self, release, CallbackResult};
use crate::custom::{borrowed, exactly};
use crate::{ffi, op, sys, Error, Result, Status, Tensor};

/// A function with a gradient of its own. Neither method records gradients, and the tensors that they get belong to the library.
///
/// Threads may run backward through the same graph at the same time, so the function is `Sync`.
pub trait Function: Send + Sync + 'static {
    /// From the inputs to the outputs, at least one. It [saves](FunctionForward::save) what the backward needs. Under activation
    /// checkpointing it runs a second time, in backward.
    fn forward(&self, call: &mut FunctionForward<'_>) -> CallbackResult<Vec<Tensor>>;

    /// From what was saved and the gradients of the outputs to the gradient of each input, in its shape and dtype. None: there is
    /// none, or it is [not wanted](FunctionBackward::needs_grad).
    fn backward(&self, call: &FunctionBackward<'_>) -> CallbackResult<Vec<Option<Tensor>>>;
}

/// What a [`Function::forward`] works with.
#[derive(Debug)]
pub struct FunctionForward<'a> {
    inputs: &'a [Option<Tensor>],
    needs_grad: &'a [i32],
    saved: Vec<Tensor>,
}

impl<'a> FunctionForward<'a> {
    /// All inputs: `let [x, weight] = call.inputs()?;`
    pub fn inputs<const N: usize>(&self) -> Result<[&'a Tensor; N]> {
        exactly("function", "inputs", self.inputs)
    }

    /// Will the gradient of an input be wanted?
    pub fn needs_grad(&self, input: usize) -> bool {
        self.needs_grad.get(input) == Some(&1)
    }

    /// Keeps a tensor for the backward: an input, an output or another one. Its values must not change until then.
    pub fn save(&mut self, tensor: &Tensor) -> Result<()> {
        self.saved.push(tensor.duplicate()?);
        Ok(())
    }
}

/// What a [`Function::backward`] works with.
#[derive(Debug)]
pub struct FunctionBackward<'a> {
    saved: &'a [Option<Tensor>],
    output_gradients: &'a [Option<Tensor>],
    needs_grad: &'a [i32],
}

impl<'a> FunctionBackward<'a> {
    /// What the forward has saved, in the same order.
    pub fn saved<const N: usize>(&self) -> Result<[&'a Tensor; N]> {
        exactly("function", "saved tensors", self.saved)
    }

    /// The gradients of the outputs; zeros stand for an output that the loss does not depend on.
    pub fn output_gradients<const N: usize>(&self) -> Result<[&'a Tensor; N]> {
        exactly("function", "gradients of outputs", self.output_gradients)
    }

    /// Is the gradient of an input wanted?
    pub fn needs_grad(&self, input: usize) -> bool {
        self.needs_grad.get(input) == Some(&1)
    }
}

/// Calls the function's forward. A backward through the outputs calls its backward, whose error or panic is then the source of
/// that call's error. `name` is for messages. The function is dropped with the graph that the outputs are in.
pub fn call<F: Function>(name: &str, function: F, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    ffi::ready()?;
    let name = ffi::c_text(name)?;
    let inputs = ffi::tensors(inputs.iter().copied());
    let mut outputs = [sys::fsdp2_tensor::default(); sys::FSDP2_MAX_OUTPUTS as usize];
    let mut n = 0;
    ffi::give(function, |user_data| unsafe {
        sys::fsdp2_function_call(
            name.as_ptr(),
            ffi::pointer(&inputs),
            inputs.len(),
            op::flags(sys::FSDP2_OP_NO_GRAD),
            sys::fsdp2_scope::default(),
            Some(run_forward::<F>),
            Some(run_backward::<F>),
            user_data,
            Some(release::<F>),
            outputs.as_mut_ptr(),
            outputs.len(),
            &mut n,
        )
    })?;
    Ok(outputs[..n]
        .iter()
        .copied()
        .filter_map(Tensor::own)
        .collect())
}

unsafe extern "C" fn run_forward<F: Function>(
    info: *const sys::fsdp2_function_info,
    inputs: *const sys::fsdp2_tensor,
    n_inputs: usize,
    outputs: *mut sys::fsdp2_tensor,
    saved: *mut sys::fsdp2_tensor,
    cap: usize,
    n_outputs: *mut usize,
    n_saved: *mut usize,
    function: *mut c_void,
) -> sys::fsdp2_status {
    callback::run(|| {
        let mut call = FunctionForward {
            inputs: borrowed(inputs, n_inputs),
            needs_grad: needs_grad(&*info),
            saved: Vec::new(),
        };
        let made = (*(function as *const F)).forward(&mut call)?;
        if made.len().max(call.saved.len()) > cap {
            let (outputs, saved) = (made.len(), call.saved.len());
            return Err(wrong(format!(
                "expected at most {cap} outputs and as many saved tensors, found {outputs} and {saved}"
            )));
        }
        *n_outputs = hand_over(made.into_iter().map(Some), outputs);
        *n_saved = hand_over(call.saved.into_iter().map(Some), saved);
        Ok(())
    })
}

unsafe extern "C" fn run_backward<F: Function>(
    info: *const sys::fsdp2_function_info,
    saved: *const sys::fsdp2_tensor,
    n_saved: usize,
    output_gradients: *const sys::fsdp2_tensor,
    n_outputs: usize,
    gradients: *mut sys::fsdp2_tensor,
    function: *mut c_void,
) -> sys::fsdp2_status {
    callback::run(|| {
        let needs_grad = needs_grad(&*info);
        let made = (*(function as *const F)).backward(&FunctionBackward {
            saved: borrowed(saved, n_saved),
            output_gradients: borrowed(output_gradients, n_outputs),
            needs_grad,
        })?;
        if made.len() != needs_grad.len() {
            let (inputs, found) = (needs_grad.len(), made.len());
            return Err(wrong(format!(
                "expected {inputs} gradients, one for each input, found {found}"
            )));
        }
        hand_over(made.into_iter(), gradients);
        Ok(())
    })
}

unsafe fn needs_grad(info: &sys::fsdp2_function_info) -> &[i32] {
    match info.n_inputs {
        0 => &[],
        n => std::slice::from_raw_parts(info.needs_grad, n),
    }
}

/// Writes the tensors' handles, which are the library's from now on, and returns their number.
unsafe fn hand_over(
    tensors: impl ExactSizeIterator<Item = Option<Tensor>>,
    to: *mut sys::fsdp2_tensor,
) -> usize {
    let n = tensors.len();
    for (i, tensor) in tensors.enumerate() {
        *to.add(i) = tensor.map(Tensor::into_raw).unwrap_or_default();
    }
    n
}

fn wrong(message: String) -> callback::CallbackError {
    Error::new(Status::InvalidArgument, message).into()
}
