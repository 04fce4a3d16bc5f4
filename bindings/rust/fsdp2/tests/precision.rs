//! Settings of the whole process, in a process of their own.

use std::sync::Mutex;

use fsdp2::runtime::{
    describe, set_deterministic, set_matmul_precision, set_product_engine, MatmulPrecision,
    ProductEngine,
};

/// A test at a time: the description is of all settings.
static SETTINGS: Mutex<()> = Mutex::new(());

#[test]
fn the_matmul_precision_can_be_chosen() {
    let _alone = SETTINGS.lock();
    set_matmul_precision(MatmulPrecision::HighAlways).unwrap();
    assert!(describe()
        .unwrap()
        .contains("matmul_precision: high-always"));
    set_matmul_precision(MatmulPrecision::Highest).unwrap();
    assert!(describe().unwrap().contains("matmul_precision: highest"));
}

#[test]
fn the_engine_of_products_is_chosen() {
    let _alone = SETTINGS.lock();
    set_deterministic(true).unwrap();
    set_product_engine(ProductEngine::Onednn).unwrap();
    assert!(describe().unwrap().contains("oneDNN (set)"));
    set_product_engine(ProductEngine::Auto).unwrap();
    set_deterministic(false).unwrap();
}
