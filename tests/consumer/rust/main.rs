//! Makes a mesh of one rank by the C ABI, and gives it back.

use fsdp2_sys::*;

fn main() {
    let mut mesh = fsdp2_mesh { id: 0 };
    unsafe {
        assert_eq!(fsdp2_check_version(FSDP2_HEADER_VERSION), FSDP2_OK);
        assert_eq!(fsdp2_mesh_create(std::ptr::null(), &mut mesh), FSDP2_OK);
        assert_eq!(fsdp2_live_handles(), 1);
        assert_eq!(fsdp2_mesh_destroy(mesh), FSDP2_OK);
        assert_eq!(fsdp2_live_handles(), 0);
    }
}
