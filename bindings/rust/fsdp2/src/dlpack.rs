//! Memory that this library shares with Rust and with other libraries, without a copy, by DLPack 1.x.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use crate::{ffi, sys, Dtype, Element, Error, Result, Status, Tensor};

/// `DLManagedTensorVersioned` of dlpack.h.
#[repr(C)]
struct Managed {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    flags: u64,
    tensor: Strided,
}

/// `DLTensor` of dlpack.h.
#[repr(C)]
struct Strided {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    n_dims: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// A tensor on its way from one library to another: a `DLManagedTensorVersioned`, whose deleter runs when this is dropped.
#[derive(Debug)]
pub struct DlPack(NonNull<Managed>);

impl DlPack {
    /// Takes over what another library has made.
    ///
    /// # Safety
    ///
    /// It is a valid `DLManagedTensorVersioned` that nobody else deletes, and its deleter may run on any thread.
    pub unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
        Self(raw.cast())
    }

    /// Hands over a `DLManagedTensorVersioned`, whose deleter the receiver runs.
    pub fn into_raw(self) -> NonNull<c_void> {
        std::mem::ManuallyDrop::new(self).0.cast()
    }
}

impl Drop for DlPack {
    fn drop(&mut self) {
        // SAFETY: this has owned it.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// The elements of a tensor where they lie, row-major. See [`Tensor::view_elements`].
#[derive(Debug)]
pub struct View<T> {
    shared: DlPack,
    length: usize,
    element: PhantomData<T>,
}

impl<T: Element> Deref for View<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory lives as long as `shared`, and who has made the view has promised the rest.
        unsafe {
            let tensor = &self.shared.0.as_ref().tensor;
            match self.length {
                0 => &[],
                n => {
                    let first = tensor.data.cast::<u8>().add(tensor.byte_offset as usize);
                    std::slice::from_raw_parts(first.cast::<T>(), n)
                }
            }
        }
    }
}

impl Tensor {
    /// A tensor of these elements, row-major, without a copy: it owns their memory.
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: &[i64]) -> Result<Self> {
        let numel = shape.iter().try_fold(1usize, |numel, size| {
            usize::try_from(*size).ok()?.checked_mul(numel)
        });
        if numel != Some(elements.len()) {
            let n = elements.len();
            let message = format!("expected as many elements as {shape:?} has, found {n}");
            return Err(Error::new(Status::InvalidArgument, message));
        }
        Self::from_dlpack(Owner::share(elements, shape))
    }

    /// Shares the memory of another library's tensor. It must be writable, and of a layout and an element type that LibTorch
    /// knows.
    pub fn from_dlpack(source: DlPack) -> Result<Self> {
        ffi::ready()?;
        let raw = source.0.as_ptr() as *mut sys::DLManagedTensorVersioned;
        let tensor = Self::made(|out| unsafe { sys::fsdp2_tensor_from_dlpack(raw, out) })?;
        std::mem::forget(source); // the library has taken it over
        Ok(tensor)
    }

    /// Shares the tensor's memory with another library. Refused for one that requires grad, or whose memory FSDP has freed.
    pub fn to_dlpack(&self) -> Result<DlPack> {
        let mut out = ptr::null_mut();
        ffi::check(unsafe { sys::fsdp2_tensor_to_dlpack(self.raw(), 0, &mut out) })?;
        NonNull::new(out as *mut Managed)
            .map(DlPack)
            .ok_or_else(|| Error::new(Status::Internal, "a tensor was shared as nothing"))
    }

    /// The elements where they lie, without a copy. The tensor must be contiguous, and the type its own.
    ///
    /// # Safety
    ///
    /// As long as the view lives, nothing writes to this memory: no operator that works in place, no optimizer whose parameter
    /// it is, no [`Tensor::write`], and no other library. A tensor of bools has only those that operators make.
    pub unsafe fn view_elements<T: Element>(&self) -> Result<View<T>> {
        let info = self.info_for(T::DTYPE)?;
        let rows = strides_of(&info.shape);
        let is_long = |dim: &usize| info.shape[*dim] > 1;
        let length = info.n_bytes as usize / std::mem::size_of::<T>();
        let dims = 0..info.shape.len();
        if length > 0
            && dims
                .filter(is_long)
                .any(|dim| info.strides[dim] != rows[dim])
        {
            let message = format!(
                "expected a contiguous tensor, found strides {:?}",
                info.strides
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        Ok(View {
            shared: self.to_dlpack()?,
            length,
            element: PhantomData,
        })
    }
}

/// Row-major.
fn strides_of(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim]);
    }
    strides
}

/// What a tensor of a Vec's memory points to, until its deleter runs.
struct Owner<T> {
    managed: Managed,
    shape: Vec<i64>,
    strides: Vec<i64>,
    elements: Vec<T>,
}

impl<T: Element> Owner<T> {
    fn share(elements: Vec<T>, shape: &[i64]) -> DlPack {
        let (code, bits) = code_and_bits::<T>();
        let owner = Box::new(Self {
            managed: Managed {
                major: 1,
                minor: 0,
                context: ptr::null_mut(),
                deleter: Some(Self::delete),
                flags: 0,
                tensor: Strided {
                    data: ptr::null_mut(),
                    device_type: sys::FSDP2_DEVICE_CPU,
                    device_id: 0,
                    n_dims: shape.len() as i32,
                    code,
                    bits,
                    lanes: 1,
                    shape: ptr::null_mut(),
                    strides: ptr::null_mut(),
                    byte_offset: 0,
                },
            },
            shape: shape.to_vec(),
            strides: strides_of(shape),
            elements,
        });
        let raw = Box::into_raw(owner);
        // SAFETY: the box is this function's, and its parts stay where they are.
        unsafe {
            let tensor = &mut (*raw).managed.tensor;
            tensor.data = (*raw).elements.as_mut_ptr().cast();
            tensor.shape = (*raw).shape.as_mut_ptr();
            tensor.strides = (*raw).strides.as_mut_ptr();
            (*raw).managed.context = raw.cast();
            DlPack(NonNull::new_unchecked(ptr::addr_of_mut!((*raw).managed)))
        }
    }

    unsafe extern "C" fn delete(managed: *mut Managed) {
        drop(Box::from_raw((*managed).context as *mut Self));
    }
}

fn code_and_bits<T: Element>() -> (u8, u8) {
    let code = match T::DTYPE {
        Dtype::F16 | Dtype::F32 | Dtype::F64 => 2,
        Dtype::U8 => 1,
        Dtype::Bf16 => 4,
        Dtype::Bool => 6,
        _ => 0, // signed integers
    };
    (code, 8 * std::mem::size_of::<T>() as u8)
}
