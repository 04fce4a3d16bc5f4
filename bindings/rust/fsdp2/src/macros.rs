//! The shapes in which the C ABI's things appear here: objects, enums, options that go in, infos that come out.

/// An object: a handle that is destroyed when it is dropped. The marker says whether threads may share it.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident: $raw:ident, $destroy:ident, $duplicate:ident, $marker:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            raw: sys::$raw,
            marker: std::marker::PhantomData<$marker>,
        }

        impl $name {
            pub(crate) fn own(raw: sys::$raw) -> Self {
                Self { raw, marker: std::marker::PhantomData }
            }

            pub(crate) fn raw(&self) -> sys::$raw {
                self.raw
            }

            /// Another handle to the same object, for a second owner. The object ends with its last handle, or with the last
            /// object that was made from it.
            pub fn duplicate(&self) -> Result<Self> {
                ffi::made(|out| unsafe { sys::$duplicate(self.raw, out) }).map(Self::own)
            }

            /// What dropping does, for those who want to know whether it failed.
            pub fn destroy(self) -> Result<()> {
                let object = std::mem::ManuallyDrop::new(self);
                ffi::check(unsafe { sys::$destroy(object.raw) })
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // Nobody is left to be told: an object that still belongs to this value can be destroyed.
                let _ = unsafe { sys::$destroy(self.raw) };
            }
        }
    };
}

/// An enum of the ABI. Enums grow, so a number that this version does not know is kept.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A number that this version has no name for.
            Other(i32),
        }

        impl $name {
            /// The number in the C ABI.
            pub fn number(self) -> i32 {
                match self {
                    $(Self::$variant => sys::$number,)*
                    Self::Other(number) => number,
                }
            }

            pub(crate) fn from_number(number: i32) -> Self {
                match number {
                    $(sys::$number => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl crate::ffi::Field<i32> for $name {
            fn from_c(number: i32) -> Self {
                Self::from_number(number)
            }

            fn to_c(&self) -> i32 {
                self.number()
            }
        }
    };
}

/// Options: the fields' defaults are the library's own. Fields that are no plain numbers are listed under `others`, with their
/// defaults; `raw` leaves these to its caller.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident: $raw:ident, $init:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    } $(others |$defaults:ident| { $($(#[$other_doc:meta])* $other:ident: $other_type:ty = $default:expr,)* })?) => {
        $(#[$doc])*
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            $($($(#[$other_doc])* pub $other: $other_type,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                let raw = crate::ffi::defaults(|to, size| unsafe { sys::$init(to, size) });
                $(let $defaults = &raw;)?
                Self {
                    $($field: crate::ffi::Field::from_c(raw.$field),)*
                    $($($other: $default,)*)?
                }
            }
        }

        impl $name {
            pub(crate) fn raw(&self) -> sys::$raw {
                let mut raw = crate::ffi::defaults(|to, size| unsafe { sys::$init(to, size) });
                $(raw.$field = crate::ffi::Field::to_c(&self.$field);)*
                raw
            }
        }
    };
}

/// What comes out of a call. Fields that are no plain numbers are listed under `others`, with the way to read them.
macro_rules! info {
    ($(#[$doc:meta])* $name:ident: $raw:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    } $(others |$from:ident| { $($(#[$other_doc:meta])* $other:ident: $other_type:ty = $value:expr,)* })?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            $($($(#[$other_doc])* pub $other: $other_type,)*)?
        }

        impl $name {
            pub(crate) fn get(call: impl FnOnce(*mut sys::$raw) -> sys::fsdp2_status) -> Result<Self> {
                let mut raw = sys::$raw {
                    struct_size: std::mem::size_of::<sys::$raw>() as u32,
                    ..Default::default()
                };
                crate::ffi::check(call(&mut raw))?;
                $(let $from = &raw;)?
                Ok(Self {
                    $($field: crate::ffi::Field::from_c(raw.$field),)*
                    $($($other: $value,)*)?
                })
            }
        }
    };
}
