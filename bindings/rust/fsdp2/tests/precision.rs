//! A setting of the whole process, in a process of its own.

use fsdp2::runtime::{describe, set_matmul_precision, MatmulPrecision};

#[test]
fn the_matmul_precision_can_be_chosen() {
    set_matmul_precision(MatmulPrecision::HighAlways).unwrap();
    assert!(describe()
        .unwrap()
        .contains("matmul_precision: high-always"));
    set_matmul_precision(MatmulPrecision::Highest).unwrap();
    assert!(describe().unwrap().contains("matmul_precision: highest"));
}
