//! `+`, `-`, `*` and `/` between tensors, their references, numbers, and the results of each other.

use std::borrow::Borrow;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::{Result, Tensor};

macro_rules! arithmetic {
    ($($trait:ident $method:ident $tensor:literal $scalar:literal;)*) => { $(
        arithmetic!(with_tensor $trait $method $tensor: Tensor, &Tensor);
        arithmetic!(with_number $trait $method $scalar: i64, f64);
    )* };
    (with_tensor $trait:ident $method:ident $name:literal: $($self:ty),*) => { $(
        impl<B: Borrow<Tensor>> $trait<B> for $self {
            type Output = Result<Tensor>;

            fn $method(self, other: B) -> Result<Tensor> {
                let left: &Tensor = self.borrow();
                op!($name, left, other.borrow())
            }
        }

        impl<B: Borrow<Tensor>> $trait<Result<B>> for $self {
            type Output = Result<Tensor>;

            fn $method(self, other: Result<B>) -> Result<Tensor> {
                $trait::$method(self, other?)
            }
        }

        impl<B: Borrow<Tensor>> $trait<$self> for Result<B> {
            type Output = Result<Tensor>;

            fn $method(self, other: $self) -> Result<Tensor> {
                let left = self?;
                let (left, right): (&Tensor, &Tensor) = (left.borrow(), other.borrow());
                op!($name, left, right)
            }
        }
    )* };
    (with_number $trait:ident $method:ident $name:literal: $($number:ty),*) => { $(
        impl $trait<$number> for &Tensor {
            type Output = Result<Tensor>;

            fn $method(self, other: $number) -> Result<Tensor> {
                op!($name, self, other)
            }
        }

        impl $trait<$number> for Tensor {
            type Output = Result<Tensor>;

            fn $method(self, other: $number) -> Result<Tensor> {
                $trait::$method(&self, other)
            }
        }
    )* };
}
arithmetic! {
    Add add "aten::add.Tensor" "aten::add.Scalar";
    Sub sub "aten::sub.Tensor" "aten::sub.Scalar";
    Mul mul "aten::mul.Tensor" "aten::mul.Scalar";
    Div div "aten::div.Tensor" "aten::div.Scalar";
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        op!("aten::neg", self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        -&self
    }
}
