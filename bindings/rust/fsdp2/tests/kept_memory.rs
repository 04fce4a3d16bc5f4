//! A setting of the whole process, in a process of its own.

use fsdp2::runtime::{describe, keep_memory};

#[test]
fn memory_is_kept_on_request() {
    assert!(describe().unwrap().contains("kept_memory: off"));
    keep_memory(true).unwrap();
    assert!(describe().unwrap().contains("kept_memory: 0 bytes"));
    keep_memory(false).unwrap();
    assert!(describe().unwrap().contains("kept_memory: off"));
}
