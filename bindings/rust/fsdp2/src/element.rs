//! Element types: of the library, and of Rust.

use crate::sys;

numbers! {
    /// The element type of a tensor.
    Dtype {
        /// `f32`
        F32 = FSDP2_DTYPE_F32,
        /// `f64`
        F64 = FSDP2_DTYPE_F64,
        /// IEEE's half precision
        F16 = FSDP2_DTYPE_F16,
        /// bfloat16
        Bf16 = FSDP2_DTYPE_BF16,
        /// `i64`
        I64 = FSDP2_DTYPE_I64,
        /// `i32`
        I32 = FSDP2_DTYPE_I32,
        /// `i16`
        I16 = FSDP2_DTYPE_I16,
        /// `i8`
        I8 = FSDP2_DTYPE_I8,
        /// `u8`
        U8 = FSDP2_DTYPE_U8,
        /// `bool`
        Bool = FSDP2_DTYPE_BOOL,
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type of Rust that tensors have as elements.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The library's name for it.
    const DTYPE: Dtype;
    /// What its bytes are: the type itself, if all bytes are a value of it.
    #[doc(hidden)]
    type Bytes: Copy + Default;
    #[doc(hidden)]
    fn from_bytes(bytes: Self::Bytes) -> Self;
}

macro_rules! elements {
    ($($type:ty: $dtype:ident, $bytes:ty, |$from:ident| $value:expr;)*) => { $(
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            type Bytes = $bytes;

            fn from_bytes($from: $bytes) -> Self {
                $value
            }
        }
    )* };
}
elements! {
    f32: F32, f32, |value| value;
    f64: F64, f64, |value| value;
    i64: I64, i64, |value| value;
    i32: I32, i32, |value| value;
    i16: I16, i16, |value| value;
    i8: I8, i8, |value| value;
    u8: U8, u8, |value| value;
    bool: Bool, u8, |byte| byte != 0;
}
