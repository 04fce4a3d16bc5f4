//! Tensors: elements in and out, and gradients.

use std::ffi::c_void;
use std::fmt;
use std::mem::{size_of, size_of_val, ManuallyDrop};
use std::num::NonZeroU64;

use crate::{ffi, sys, Dtype, Element, Error, Result, Status};

numbers! {
    /// Where a tensor's memory is.
    DeviceType {
        /// The processor's memory.
        Cpu = FSDP2_DEVICE_CPU,
        /// A CUDA device.
        Cuda = FSDP2_DEVICE_CUDA,
    }
}

info! {
    /// What a tensor is.
    TensorInfo: fsdp2_tensor_info {
        /// Its elements' type.
        dtype: Dtype,
        /// Where its memory is.
        device_type: DeviceType,
        /// On which device of that type.
        device_index: i32,
        /// Do backwards leave a gradient for it?
        requires_grad: bool,
        /// The number of elements times their size.
        n_bytes: i64,
    } others |raw| {
        /// The sizes of its dims.
        shape: Vec<i64> = ffi::dims(&raw.shape, raw.n_dims),
        /// How far apart neighbours in each dim are, in elements.
        strides: Vec<i64> = ffi::dims(&raw.strides, raw.n_dims),
    }
}

/// A tensor of LibTorch.
///
/// Any operator computes with tensors ([`op`](mod@crate::op)); the common ones are methods, and `+`, `-`, `*`, `/` take references,
/// numbers and the results of each other: `(&x * 2.0 + &y)?`. A number on the right of a result wants a question mark first:
/// `((&x + &y)? * 2.0)?`. What is computed records gradients, unless inside [`no_grad`](crate::no_grad).
///
/// Threads may share tensors. Values that one thread writes while another one uses them may come out wrong, but do no harm
/// beyond that.
#[repr(transparent)] // with the niche of zero: an Option<Tensor> is C's fsdp2_tensor
#[derive(PartialEq, Eq, Hash)]
pub struct Tensor(NonZeroU64);

impl Tensor {
    pub(crate) fn raw(&self) -> sys::fsdp2_tensor {
        sys::fsdp2_tensor { id: self.0.get() }
    }

    pub(crate) fn own(raw: sys::fsdp2_tensor) -> Option<Self> {
        NonZeroU64::new(raw.id).map(Self)
    }

    /// Hands the handle over.
    pub(crate) fn into_raw(self) -> sys::fsdp2_tensor {
        ManuallyDrop::new(self).raw()
    }

    /// The output of a call that makes a tensor.
    pub(crate) fn made(
        call: impl FnOnce(*mut sys::fsdp2_tensor) -> sys::fsdp2_status,
    ) -> Result<Self> {
        Self::given(ffi::made(call)?)
    }

    /// A handle that a call has made.
    pub(crate) fn given(raw: sys::fsdp2_tensor) -> Result<Self> {
        Self::own(raw).ok_or_else(|| Error::new(Status::Internal, "a call made no tensor"))
    }

    /// A tensor with a copy of these elements, row-major. No sizes make a scalar.
    pub fn from_slice<T: Element>(elements: &[T], shape: &[i64]) -> Result<Self> {
        // SAFETY: elements have no padding.
        unsafe {
            Self::copied(
                elements.as_ptr().cast(),
                size_of_val(elements),
                T::DTYPE,
                shape,
            )
        }
    }

    /// Like [`Tensor::from_slice`], of any element type, from its bytes.
    pub fn from_buffer(bytes: &[u8], dtype: Dtype, shape: &[i64]) -> Result<Self> {
        unsafe { Self::copied(bytes.as_ptr().cast(), bytes.len(), dtype, shape) }
    }

    unsafe fn copied(
        data: *const c_void,
        n_bytes: usize,
        dtype: Dtype,
        shape: &[i64],
    ) -> Result<Self> {
        ffi::ready()?;
        Self::made(|out| {
            let sizes = ffi::pointer(shape);
            sys::fsdp2_tensor_from_buffer(data, n_bytes, dtype.number(), sizes, shape.len(), out)
        })
    }

    /// A copy of the elements, row-major. The type must be the tensor's.
    pub fn read<T: Element>(&self) -> Result<Vec<T>> {
        let info = self.info_for(T::DTYPE)?;
        let numel = info.n_bytes as usize / size_of::<T::Bytes>();
        let mut elements = vec![T::Bytes::default(); numel];
        let n_bytes = size_of_val(elements.as_slice());
        // SAFETY: any bytes are a value of T::Bytes.
        ffi::check(unsafe {
            sys::fsdp2_tensor_read(self.raw(), elements.as_mut_ptr().cast(), n_bytes)
        })?;
        Ok(elements.into_iter().map(T::from_bytes).collect())
    }

    /// Copies the elements, row-major, of whichever type. The length must be that of all of them.
    pub fn read_bytes(&self, to: &mut [u8]) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_tensor_read(self.raw(), to.as_mut_ptr().cast(), to.len()) })
    }

    /// Overwrites the elements, row-major. Autograd does not see it: if a graph has kept the tensor, its backward fails.
    pub fn write<T: Element>(&self, from: &[T]) -> Result<()> {
        self.info_for(T::DTYPE)?;
        ffi::check(unsafe {
            sys::fsdp2_tensor_write(self.raw(), from.as_ptr().cast(), size_of_val(from))
        })
    }

    /// Like [`Tensor::write`], of any element type, from its bytes.
    pub fn write_bytes(&self, from: &[u8]) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_tensor_write(self.raw(), from.as_ptr().cast(), from.len()) })
    }

    /// The value of a tensor of one element.
    pub fn value(&self) -> Result<f64> {
        ffi::made(|out| unsafe { sys::fsdp2_tensor_get_value(self.raw(), out) })
    }

    /// What the tensor is.
    pub fn info(&self) -> Result<TensorInfo> {
        TensorInfo::get(|out| unsafe { sys::fsdp2_tensor_get_info(self.raw(), out) })
    }

    /// The sizes of its dims.
    pub fn shape(&self) -> Result<Vec<i64>> {
        self.info().map(|info| info.shape)
    }

    /// Its elements' type.
    pub fn dtype(&self) -> Result<Dtype> {
        self.info().map(|info| info.dtype)
    }

    pub(crate) fn info_for(&self, dtype: Dtype) -> Result<TensorInfo> {
        let info = self.info()?;
        if info.dtype != dtype {
            let found = info.dtype;
            let message = format!("expected a tensor of {dtype:?}, found one of {found:?}");
            return Err(Error::new(Status::InvalidArgument, message));
        }
        Ok(info)
    }

    /// From now on, what is computed from this tensor records a gradient for it. It must be floating-point and not the result
    /// of one that recorded gradients.
    pub fn set_requires_grad(&self, flag: bool) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_tensor_set_requires_grad(self.raw(), i32::from(flag)) })
    }

    /// The sum of the gradients that backwards have left on a tensor that requires grad, sharing its memory.
    pub fn grad(&self) -> Result<Tensor> {
        Self::made(|out| unsafe { sys::fsdp2_tensor_get_grad(self.raw(), out) })
    }

    /// Runs backward from a scalar through everything that made it. *Collective*, if a sharded module is in it.
    pub fn backward(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_tensor_backward(self.raw()) })
    }

    /// Another handle to the same tensor.
    pub fn duplicate(&self) -> Result<Self> {
        Self::made(|out| unsafe { sys::fsdp2_tensor_duplicate(self.raw(), out) })
    }

    /// What dropping does, for those who want to know whether it failed. What is destroyed is gone:
    ///
    /// ```compile_fail,E0382
    /// # fn main() -> fsdp2::Result<()> {
    /// let x = fsdp2::Tensor::from_slice(&[1f32], &[1])?;
    /// x.destroy()?;
    /// x.value()?;
    /// # Ok(()) }
    /// ```
    pub fn destroy(self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_tensor_destroy(self.into_raw()) })
    }
}

/// The type and the sizes, such as `Tensor(F32, [2, 3])`, or why there are none.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Ok(info) => write!(f, "Tensor({:?}, {:?})", info.dtype, info.shape),
            Err(error) => write!(f, "Tensor({})", error.status()),
        }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        let _ = unsafe { sys::fsdp2_tensor_destroy(self.raw()) };
    }
}

/// Like [`Tensor::backward`], from several tensors at once, starting with the given gradients: none at all, or one for each
/// output, where `None` stands for 1 at an output that is a scalar. With `keep_graph`, another backward may follow.
pub fn run_backward(
    outputs: &[&Tensor],
    gradients: &[Option<&Tensor>],
    keep_graph: bool,
) -> Result<()> {
    if !gradients.is_empty() && gradients.len() != outputs.len() {
        let (n, expected) = (gradients.len(), outputs.len());
        let message = format!("gradients: expected none or {expected}, found {n}");
        return Err(Error::new(Status::InvalidArgument, message));
    }
    let outputs = ffi::tensors(outputs.iter().copied());
    let gradients = ffi::tensors(gradients.iter().copied());
    ffi::check(unsafe {
        sys::fsdp2_tensor_run_backward(
            outputs.as_ptr(),
            outputs.len(),
            ffi::pointer(&gradients),
            i32::from(keep_graph),
        )
    })
}
