//! Models that a program writes: modules whose forward is a closure, made of operators and of the forwards of other modules.
//!
//! ```no_run
//! use fsdp2::{Init, Module, ParameterOptions};
//!
//! # fn main() -> fsdp2::Result<()> {
//! let linear = Module::create_custom("Linear", &Default::default(), |forward| {
//!     Ok(forward.input(0)?.linear(forward.parameter(0)?, Some(forward.parameter(1)?))?)
//! })?;
//! linear.add_parameter("weight", &[16, 8], &Default::default())?;
//! let zeros = ParameterOptions { init: Init::Zeros, ..Default::default() };
//! linear.add_parameter("bias", &[16], &zeros)?;
//! # Ok(()) }
//! ```

use std::ffi::c_void;

use crate::callback::{self, release, CallbackResult};
use crate::{ffi, sys, Dtype, Error, Module, ModuleOptions, Result, Status, Tensor};

numbers! {
    /// What a parameter begins with, the same at any world size.
    Init {
        /// Normally distributed around 0.
        Normal = FSDP2_INIT_NORMAL,
        /// Zeros.
        Zeros = FSDP2_INIT_ZEROS,
        /// Ones.
        Ones = FSDP2_INIT_ONES,
    }
}

options! {
    /// How a parameter begins.
    #[derive(Debug, Clone, PartialEq)]
    ParameterOptions: fsdp2_parameter_options, fsdp2_parameter_options_init {
        /// None: that of its module's options.
        dtype: Option<Dtype>,
        /// What it begins with.
        init: Init,
        /// The standard deviation of [`Init::Normal`].
        std: f64,
    }
}

/// What a forward has to work with. The tensors belong to the library; what it returns may be among their
/// [duplicates](Tensor::duplicate).
#[derive(Debug)]
pub struct Forward<'a> {
    kind: &'a str,
    is_training: bool,
    inputs: &'a [Option<Tensor>],
    parameters: &'a [Option<Tensor>],
    buffers: &'a [Option<Tensor>],
}

impl<'a> Forward<'a> {
    /// The module's class.
    pub fn kind(&self) -> &'a str {
        self.kind
    }

    /// Is the module in training mode?
    pub fn is_training(&self) -> bool {
        self.is_training
    }

    /// How many inputs came, those that are left out included.
    pub fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// An input that the module needs.
    pub fn input(&self, index: usize) -> Result<&'a Tensor> {
        self.optional_input(index).ok_or_else(|| {
            let (kind, n) = (self.kind, self.inputs.len());
            let message = format!("{kind}: expected an input {index}, found {n} inputs");
            Error::new(Status::InvalidArgument, message)
        })
    }

    /// An input that may be left out.
    pub fn optional_input(&self, index: usize) -> Option<&'a Tensor> {
        self.inputs.get(index)?.as_ref()
    }

    /// A parameter of its own, by its number in the order in which they were added.
    pub fn parameter(&self, index: usize) -> Result<&'a Tensor> {
        numbered(self.kind, "parameter", self.parameters, index)
    }

    /// All of them: `let [weight, bias] = forward.parameters()?;`
    pub fn parameters<const N: usize>(&self) -> Result<[&'a Tensor; N]> {
        exactly(self.kind, "parameters", self.parameters)
    }

    /// A buffer of its own, by its number in the order in which they were added. Its values may be changed in place.
    pub fn buffer(&self, index: usize) -> Result<&'a Tensor> {
        numbered(self.kind, "buffer", self.buffers, index)
    }

    /// All of them: `let [mean, variance] = forward.buffers()?;`
    pub fn buffers<const N: usize>(&self) -> Result<[&'a Tensor; N]> {
        exactly(self.kind, "buffers", self.buffers)
    }
}

fn numbered<'a>(
    kind: &str,
    what: &str,
    tensors: &'a [Option<Tensor>],
    index: usize,
) -> Result<&'a Tensor> {
    let found = tensors.get(index).and_then(Option::as_ref);
    found.ok_or_else(|| {
        let n = tensors.len();
        let message = format!("{kind}: expected a {what} {index}, found {n} {what}s");
        Error::new(Status::InvalidArgument, message)
    })
}

/// As many tensors as the program takes apart.
pub(crate) fn exactly<'a, const N: usize>(
    kind: &str,
    what: &str,
    tensors: &'a [Option<Tensor>],
) -> Result<[&'a Tensor; N]> {
    let found: Vec<&Tensor> = tensors.iter().flatten().collect();
    found.try_into().map_err(|_| {
        let n = tensors.len();
        let message = format!("{kind}: expected {N} {what}, found {n}");
        Error::new(Status::InvalidArgument, message)
    })
}

/// A module is put together before its first forward, and before anything in it is sharded. A child is then a part of its
/// parent: its own [`Module`] serves only to call it, inside its parent's forward.
impl Module {
    /// A module of the class `kind`, whose forward is a closure from inputs and parameters to a tensor or several.
    ///
    /// The closure may call the module's children, which it owns. Under activation checkpointing it runs a second time, in
    /// backward. It moves to the thread that uses the model:
    ///
    /// ```compile_fail,E0277
    /// let counter = std::rc::Rc::new(std::cell::Cell::new(0));
    /// let _ = fsdp2::Module::create_custom("Counter", &Default::default(), move |forward| {
    ///     counter.set(counter.get() + 1);
    ///     Ok(forward.input(0)?.duplicate()?)
    /// });
    /// ```
    pub fn create_custom<F, R>(kind: &str, options: &ModuleOptions, forward: F) -> Result<Self>
    where
        F: Fn(&Forward<'_>) -> CallbackResult<R> + Send + 'static,
        R: Into<Vec<Tensor>>,
    {
        ffi::ready()?;
        let kind = ffi::c_text(kind)?;
        let mut module = sys::fsdp2_module::default();
        options.with_raw(|raw| {
            ffi::give(forward, |user_data| unsafe {
                sys::fsdp2_module_create_custom(
                    kind.as_ptr(),
                    raw,
                    Some(run_forward::<F, R>),
                    user_data,
                    Some(release::<F>),
                    &mut module,
                )
            })
        })?;
        Ok(Self::own(module))
    }

    /// Adds a parameter.
    pub fn add_parameter(
        &self,
        name: &str,
        shape: &[i64],
        options: &ParameterOptions,
    ) -> Result<()> {
        let name = ffi::c_text(name)?;
        ffi::check(unsafe {
            sys::fsdp2_module_add_parameter(
                self.raw(),
                name.as_ptr(),
                ffi::pointer(shape),
                shape.len(),
                &options.raw(),
            )
        })
    }

    /// Makes another module a part of this one.
    pub fn add_child(&self, name: &str, child: &Module) -> Result<()> {
        let name = ffi::c_text(name)?;
        ffi::check(unsafe { sys::fsdp2_module_add_child(self.raw(), name.as_ptr(), child.raw()) })
    }

    /// Makes the parameter `name` the same as `other`, as PyTorch's `head.weight = embed.weight`: one parameter, sharded and saved
    /// once, with the gradients of both places. Both are dotted paths in the module, which is that of the whole.
    pub fn tie_parameter(&self, name: &str, other: &str) -> Result<()> {
        let (name, other) = (ffi::c_text(name)?, ffi::c_text(other)?);
        ffi::check(unsafe {
            sys::fsdp2_module_tie_parameter(self.raw(), name.as_ptr(), other.as_ptr())
        })
    }

    /// Adds a buffer: a tensor that no optimizer updates, such as a table or a running mean, and that checkpoints hold. It begins as
    /// a copy of `value`. Every rank has all of it, and each rank's changes are its own.
    pub fn add_buffer(&self, name: &str, value: &Tensor) -> Result<()> {
        self.add_buffer_with(name, value, 0)
    }

    /// Like [`Module::add_buffer`], but checkpoints do not hold it.
    pub fn add_buffer_not_persistent(&self, name: &str, value: &Tensor) -> Result<()> {
        self.add_buffer_with(name, value, sys::FSDP2_BUFFER_NOT_PERSISTENT as u32)
    }

    fn add_buffer_with(&self, name: &str, value: &Tensor, flags: u32) -> Result<()> {
        let name = ffi::c_text(name)?;
        ffi::check(unsafe {
            sys::fsdp2_module_add_buffer(self.raw(), name.as_ptr(), value.raw(), flags)
        })
    }

    /// The buffer at a dotted path in the module, sharing its memory.
    pub fn buffer(&self, name: &str) -> Result<Tensor> {
        let name = ffi::c_text(name)?;
        Tensor::made(|out| unsafe { sys::fsdp2_module_get_buffer(self.raw(), name.as_ptr(), out) })
    }
}

impl From<Tensor> for Vec<Tensor> {
    fn from(tensor: Tensor) -> Self {
        vec![tensor]
    }
}

unsafe extern "C" fn run_forward<F, R>(
    info: *const sys::fsdp2_forward_info,
    inputs: *const sys::fsdp2_tensor,
    n_inputs: usize,
    outputs: *mut sys::fsdp2_tensor,
    cap: usize,
    n_outputs: *mut usize,
    closure: *mut c_void,
) -> sys::fsdp2_status
where
    F: Fn(&Forward<'_>) -> CallbackResult<R> + Send + 'static,
    R: Into<Vec<Tensor>>,
{
    callback::run(|| {
        let closure = &*(closure as *const F);
        let info = &*info;
        let made: Vec<Tensor> = closure(&Forward {
            kind: ffi::borrowed(info.kind),
            is_training: info.is_training != 0,
            inputs: borrowed(inputs, n_inputs),
            parameters: borrowed(info.parameters, info.n_parameters),
            buffers: borrowed(info.buffers, info.n_buffers),
        })?
        .into();
        if made.len() > cap {
            let message = format!("expected at most {cap} outputs, found {}", made.len());
            return Err(Error::new(Status::InvalidArgument, message).into());
        }
        *n_outputs = made.len();
        for (i, tensor) in made.into_iter().enumerate() {
            *outputs.add(i) = tensor.into_raw();
        }
        Ok(())
    })
}

/// The library's handles, for the time of a callback: a `Tensor` behind a reference is not dropped.
pub(crate) unsafe fn borrowed<'a>(
    tensors: *const sys::fsdp2_tensor,
    n: usize,
) -> &'a [Option<Tensor>] {
    match n {
        0 => &[],
        _ => std::slice::from_raw_parts(tensors.cast(), n),
    }
}
