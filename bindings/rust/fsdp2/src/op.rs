//! LibTorch's operators by name, so that a program computes with tensors as PyTorch does.
//!
//! ```no_run
//! # fn main() -> fsdp2::Result<()> {
//! # let (x, weight) = (fsdp2::Tensor::from_slice(&[1f32], &[1, 1])?, fsdp2::Tensor::from_slice(&[1f32], &[1, 1])?);
//! let y = fsdp2::op!("aten::linear", &x, &weight)?;
//! # Ok(()) }
//! ```

use std::cell::Cell;
use std::ffi::CString;
use std::mem::MaybeUninit;

use crate::{ffi, sys, Dtype, Error, Generator, Result, Status, Tensor};

/// An argument of an operator. Numbers, flags, texts, slices, tensors and element types turn into one by themselves.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// None, where the schema has a question mark.
    None,
    /// As if the argument were left out.
    Default,
    /// A tensor.
    Tensor(&'a Tensor),
    /// A whole number.
    Int(i64),
    /// A number.
    Double(f64),
    /// A flag.
    Bool(bool),
    /// An element type.
    Dtype(Dtype),
    /// A text; also a device ("cpu") or a memory format.
    Text(&'a str),
    /// What to draw random numbers from.
    Generator(&'a Generator),
    /// A list of whole numbers.
    Ints(&'a [i64]),
    /// A list of numbers.
    Doubles(&'a [f64]),
    /// A list of tensors.
    Tensors(&'a [&'a Tensor]),
    /// A list of tensors, some of which may be none.
    OptionalTensors(&'a [Option<&'a Tensor>]),
}

macro_rules! values {
    ($($type:ty: |$from:ident| $value:expr;)*) => { $(
        impl<'a> From<$type> for Value<'a> {
            fn from($from: $type) -> Self {
                $value
            }
        }
    )* };
}
values! {
    &'a Tensor: |tensor| Value::Tensor(tensor);
    Option<&'a Tensor>: |tensor| tensor.map_or(Value::None, Value::Tensor);
    i64: |number| Value::Int(number);
    i32: |number| Value::Int(i64::from(number));
    f64: |number| Value::Double(number);
    bool: |flag| Value::Bool(flag);
    Dtype: |dtype| Value::Dtype(dtype);
    &'a str: |text| Value::Text(text);
    &'a Generator: |generator| Value::Generator(generator);
    &'a [i64]: |list| Value::Ints(list);
    &'a [f64]: |list| Value::Doubles(list);
    &'a [&'a Tensor]: |list| Value::Tensors(list);
    &'a [Option<&'a Tensor>]: |list| Value::OptionalTensors(list);
}

macro_rules! arrays {
    ($($type:ty: $variant:ident;)*) => { $(
        impl<'a, const N: usize> From<&'a [$type; N]> for Value<'a> {
            fn from(list: &'a [$type; N]) -> Self {
                Value::$variant(list)
            }
        }
    )* };
}
arrays! {
    i64: Ints;
    f64: Doubles;
    &'a Tensor: Tensors;
    Option<&'a Tensor>: OptionalTensors;
}

/// A result of an operator.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// An output that is left undefined.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A whole number.
    Int(i64),
    /// A number.
    Double(f64),
    /// A flag.
    Bool(bool),
}

impl Output {
    /// The tensor that it is.
    pub fn tensor(self) -> Result<Tensor> {
        match self {
            Output::Tensor(tensor) => Ok(tensor),
            other => {
                let message = format!("expected a tensor from the operator, found {other:?}");
                Err(Error::new(Status::InvalidArgument, message))
            }
        }
    }
}

/// Calls an operator of LibTorch's namespace aten, such as "aten::linear" or "aten::add.Tensor": the name, a point and the
/// overload if it has one. The inputs are the arguments of its schema in order; the last ones may be missing if they have
/// defaults. The results come one after the other, the elements of lists as well.
///
/// A wrong argument is [`Status::InvalidArgument`], and its message quotes the schema.
pub fn call(name: &str, inputs: &[Value<'_>]) -> Result<Vec<Output>> {
    let mut room = [MaybeUninit::uninit(); 64];
    let none = sys::fsdp2_scope::default();
    match run(name, inputs, none, &mut room) {
        Err(failure) if failure.error.status() == Status::BufferTooSmall && failure.needed > 64 => {
            let mut room = vec![MaybeUninit::uninit(); failure.needed];
            let n = run(name, inputs, none, &mut room).map_err(|failure| failure.error)?;
            room[..n].iter().map(output).collect()
        }
        Err(failure) => Err(failure.error),
        Ok(n) => room[..n].iter().map(output).collect(),
    }
}

/// Like [`call`], of an operator whose result is one tensor. [`op!`](crate::op!) is a shorter way to write it.
pub fn tensor(name: &str, inputs: &[Value<'_>]) -> Result<Tensor> {
    tensor_in(sys::fsdp2_scope::default(), name, inputs)
}

/// Like [`tensor`], into a scope unless that is null.
pub(crate) fn tensor_in(
    scope: sys::fsdp2_scope,
    name: &str,
    inputs: &[Value<'_>],
) -> Result<Tensor> {
    let mut room = [MaybeUninit::uninit()];
    match run(name, inputs, scope, &mut room) {
        Ok(1) => output(&room[0])?.tensor(),
        Ok(n) => {
            let message = format!("{name}: expected one tensor, found {n} results");
            Err(Error::new(Status::InvalidArgument, message))
        }
        Err(failure) => Err(failure.error),
    }
}

/// The schema of an operator: "aten::relu(Tensor self) -> Tensor".
pub fn schema(name: &str) -> Result<String> {
    ffi::ready()?;
    let name = ffi::c_text(name)?;
    ffi::text(|buffer, cap, needed| unsafe {
        sys::fsdp2_op_get_schema(name.as_ptr(), buffer, cap, needed)
    })
}

thread_local! {
    static RECORDS: Cell<bool> = const { Cell::new(true) };
}

/// Runs a closure in which operators and forwards on this thread record no gradients.
pub fn no_grad<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECORDS.with(|records| records.set(self.0));
        }
    }
    let _restore = Restore(RECORDS.with(|records| records.replace(false)));
    body()
}

/// The flags of an operator or a forward.
pub(crate) fn flags(no_grad: i32) -> u32 {
    match RECORDS.with(Cell::get) {
        true => 0,
        false => no_grad as u32,
    }
}

struct Failure {
    error: Error,
    needed: usize,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, needed: 0 }
    }
}

/// The longest schemas of LibTorch have fewer arguments.
const MAX_INPUTS: usize = 32;

fn run(
    name: &str,
    inputs: &[Value<'_>],
    scope: sys::fsdp2_scope,
    room: &mut [MaybeUninit<sys::fsdp2_value>],
) -> Result<usize, Failure> {
    if inputs.len() > MAX_INPUTS {
        let n = inputs.len();
        let message = format!("{name}: expected at most {MAX_INPUTS} inputs, found {n}");
        return Err(Error::new(Status::InvalidArgument, message).into());
    }
    ffi::ready()?;
    let mut kept = Kept::default();
    let mut raw = [NONE; MAX_INPUTS];
    for (raw, input) in raw.iter_mut().zip(inputs) {
        *raw = kept.raw(input)?;
    }
    let mut needed = 0;
    ffi::with_c_text(name, |name| {
        ffi::check(unsafe {
            sys::fsdp2_op_call(
                name,
                raw.as_ptr(),
                inputs.len(),
                flags(sys::FSDP2_OP_NO_GRAD),
                scope,
                room.as_mut_ptr() as *mut sys::fsdp2_value,
                room.len(),
                &mut needed,
            )
        })
    })
    .map_err(|error| Failure { error, needed })?;
    Ok(needed)
}

const NONE: sys::fsdp2_value = sys::fsdp2_value {
    kind: sys::FSDP2_VALUE_NONE,
    reserved: 0,
    integer: 0,
    number: 0.0,
    tensor: sys::fsdp2_tensor { id: 0 },
    data: std::ptr::null(),
    count: 0,
};

/// What the inputs of a call point to.
#[derive(Default)]
struct Kept {
    texts: Vec<CString>,
    lists: Vec<Vec<sys::fsdp2_tensor>>,
}

impl Kept {
    fn raw(&mut self, value: &Value<'_>) -> Result<sys::fsdp2_value> {
        let of = |kind| sys::fsdp2_value { kind, ..NONE };
        let list = |kind, data, count| sys::fsdp2_value {
            data,
            count,
            ..of(kind)
        };
        Ok(match *value {
            Value::None => NONE,
            Value::Default => of(sys::FSDP2_VALUE_DEFAULT),
            Value::Tensor(tensor) => sys::fsdp2_value {
                tensor: tensor.raw(),
                ..of(sys::FSDP2_VALUE_TENSOR)
            },
            Value::Int(integer) => sys::fsdp2_value {
                integer,
                ..of(sys::FSDP2_VALUE_INT)
            },
            Value::Double(number) => sys::fsdp2_value {
                number,
                ..of(sys::FSDP2_VALUE_DOUBLE)
            },
            Value::Bool(flag) => sys::fsdp2_value {
                integer: i64::from(flag),
                ..of(sys::FSDP2_VALUE_BOOL)
            },
            Value::Dtype(dtype) => sys::fsdp2_value {
                integer: i64::from(dtype.number()),
                ..of(sys::FSDP2_VALUE_DTYPE)
            },
            Value::Text(text) => {
                let text = ffi::c_text(text)?;
                let data = text.as_ptr().cast(); // moving a CString leaves its bytes where they are
                self.texts.push(text);
                list(sys::FSDP2_VALUE_STRING, data, 0)
            }
            Value::Generator(generator) => sys::fsdp2_value {
                integer: generator.raw().id as i64,
                ..of(sys::FSDP2_VALUE_GENERATOR)
            },
            Value::Ints(ints) => list(sys::FSDP2_VALUE_INTS, ffi::pointer(ints).cast(), ints.len()),
            Value::Doubles(doubles) => {
                let data = ffi::pointer(doubles).cast();
                list(sys::FSDP2_VALUE_DOUBLES, data, doubles.len())
            }
            Value::Tensors(tensors) => self.tensors(ffi::tensors(tensors.iter().copied())),
            Value::OptionalTensors(tensors) => self.tensors(ffi::tensors(tensors.iter().copied())),
        })
    }

    fn tensors(&mut self, tensors: Vec<sys::fsdp2_tensor>) -> sys::fsdp2_value {
        let value = sys::fsdp2_value {
            kind: sys::FSDP2_VALUE_TENSORS,
            data: ffi::pointer(&tensors).cast(),
            count: tensors.len(),
            ..NONE
        };
        self.lists.push(tensors);
        value
    }
}

/// An element of the room that the library has filled.
fn output(value: &MaybeUninit<sys::fsdp2_value>) -> Result<Output> {
    // SAFETY: the call has succeeded, and has said that it filled this one.
    let value = unsafe { value.assume_init() };
    Ok(match value.kind {
        sys::FSDP2_VALUE_TENSOR => Tensor::own(value.tensor).map_or(Output::None, Output::Tensor),
        sys::FSDP2_VALUE_INT => Output::Int(value.integer),
        sys::FSDP2_VALUE_DOUBLE => Output::Double(value.number),
        sys::FSDP2_VALUE_BOOL => Output::Bool(value.integer != 0),
        sys::FSDP2_VALUE_NONE => Output::None,
        kind => {
            let message = format!("an operator returned a value of an unknown kind, {kind}");
            return Err(Error::new(Status::Internal, message));
        }
    })
}

/// Calls an operator whose result is one tensor: `op!("aten::linear", &x, &weight)?`.
#[macro_export]
macro_rules! op {
    ($name:expr $(, $input:expr)* $(,)?) => {
        $crate::op::tensor($name, &[$($crate::op::Value::from($input)),*])
    };
}
