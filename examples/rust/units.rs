//! Looks at a sharded model's units and steers them by hand:
//!
//! `fsdp2 run --nproc-per-node 2 -- units MODEL_DIRECTORY TOKEN_FILE`

use std::cell::Cell;
use std::ffi::{c_void, CStr, CString};
use std::mem::{size_of, MaybeUninit};
use std::process::ExitCode;
use std::{env, ptr};

use fsdp2_sys::*;

/// A result for the library to fill, which looks at its size first.
macro_rules! sized {
    ($type:ident) => {
        $type {
            struct_size: size_of::<$type>() as u32,
            ..Default::default()
        }
    };
}

fn main() -> ExitCode {
    let arguments: Vec<CString> = env::args()
        .skip(1)
        .map(|text| CString::new(text).expect("arguments have no NUL"))
        .collect();
    let outcome = match arguments.as_slice() {
        [directory, token_file] => unsafe { run(directory, token_file) },
        _ => Err("usage: units MODEL_DIRECTORY TOKEN_FILE".to_string()),
    };
    if let Err(message) = outcome {
        eprintln!("units: {message}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

unsafe fn run(directory: &CStr, token_file: &CStr) -> Result<(), String> {
    check(fsdp2_check_version(FSDP2_HEADER_VERSION))?;
    let mut mesh = fsdp2_mesh::default();
    check(fsdp2_mesh_create(ptr::null(), &mut mesh))?;
    let mut job = sized!(fsdp2_mesh_info);
    check(fsdp2_mesh_get_info(mesh, &mut job))?;
    let mut module = fsdp2_module::default();
    check(fsdp2_module_from_pretrained(
        directory.as_ptr(),
        ptr::null(),
        &mut module,
    ))?;
    let mut shard = fsdp2_shard::default();
    check(fsdp2_shard_create(module, mesh, ptr::null(), &mut shard))?;

    let mut lines = unshard_by_hand(shard)?;
    lines.push(describe_placement(shard, "model.embed_tokens.weight")?);
    lines.push(count_gradients(mesh, module, shard, token_file)?);
    if job.rank == 0 {
        println!("{}", lines.join("\n"));
    }

    check(fsdp2_shard_destroy(shard))?;
    check(fsdp2_module_destroy(module))?;
    check(fsdp2_mesh_destroy(mesh))?;
    match fsdp2_live_handles() {
        0 => Ok(()),
        live => Err(format!("{live} live handles")),
    }
}

unsafe fn unshard_by_hand(shard: fsdp2_shard) -> Result<Vec<String>, String> {
    let unit = CString::new("model.layers.0").expect("no NUL");
    let mut stats = sized!(fsdp2_shard_stats);
    check(fsdp2_shard_unshard(shard, unit.as_ptr(), 1))?;
    check(fsdp2_shard_wait_unshard(shard, unit.as_ptr()))?;
    check(fsdp2_shard_get_stats(shard, &mut stats))?;
    let unsharded = stats.unsharded_bytes;
    check(fsdp2_shard_reshard(shard, unit.as_ptr()))?;
    check(fsdp2_shard_get_stats(shard, &mut stats))?;

    let mut kinds = [0i32; 16];
    let mut units = [0usize; 16];
    let mut count = 0;
    check(fsdp2_shard_get_events(
        shard,
        kinds.as_mut_ptr(),
        units.as_mut_ptr(),
        kinds.len(),
        &mut count,
    ))?;
    let names: Vec<&str> = kinds[..count]
        .iter()
        .map(|kind| event_name(*kind))
        .collect();
    Ok(vec![
        format!(
            "unsharded bytes: {}, then {}",
            unsharded, stats.unsharded_bytes
        ),
        format!("events: {}", names.join(", ")),
    ])
}

fn event_name(kind: i32) -> &'static str {
    match kind {
        FSDP2_EVENT_ALL_GATHER => "all-gather",
        FSDP2_EVENT_UNSHARD => "unshard",
        FSDP2_EVENT_RESHARD => "reshard",
        _ => "another",
    }
}

unsafe fn describe_placement(shard: fsdp2_shard, name: &str) -> Result<String, String> {
    let c_name = CString::new(name).expect("no NUL");
    let mut index = 0;
    let mut info = sized!(fsdp2_parameter_info);
    check(fsdp2_shard_get_parameter_index(
        shard,
        c_name.as_ptr(),
        &mut index,
    ))?;
    check(fsdp2_shard_get_parameter_info(shard, index, &mut info))?;
    Ok(format!(
        "{name}: {} x {}, here {} x {}, sharded on dim {} over {} ranks",
        info.shape[0],
        info.shape[1],
        info.local_shape[0],
        info.local_shape[1],
        info.shard_dim,
        info.shard_ranks
    ))
}

unsafe extern "C" fn count_one(
    _info: *const fsdp2_gradient_info,
    _gradient: fsdp2_tensor,
    count: *mut c_void,
) -> fsdp2_status {
    let count = &*(count as *const Cell<u32>);
    count.set(count.get() + 1);
    FSDP2_OK
}

unsafe fn count_gradients(
    mesh: fsdp2_mesh,
    module: fsdp2_module,
    shard: fsdp2_shard,
    token_file: &CStr,
) -> Result<String, String> {
    let mut model = sized!(fsdp2_module_info);
    check(fsdp2_module_get_info(module, &mut model))?;
    let mut data = MaybeUninit::<fsdp2_loader_options>::zeroed();
    check(fsdp2_loader_options_init(
        data.as_mut_ptr(),
        size_of::<fsdp2_loader_options>(),
    ))?;
    let data = fsdp2_loader_options {
        sequence_length: 32,
        global_batch: 2,
        vocab_size: model.vocab_size,
        ..data.assume_init()
    };
    let mut loader = fsdp2_loader::default();
    check(fsdp2_loader_open(
        mesh,
        token_file.as_ptr(),
        &data,
        &mut loader,
    ))?;
    let mut batch = [fsdp2_tensor::default(); 2]; // tokens, labels
    let [tokens, labels] = &mut batch;
    check(fsdp2_loader_next(loader, tokens, labels))?;

    let ready = Cell::new(0u32);
    let user_data = &ready as *const Cell<u32> as *mut c_void;
    check(fsdp2_shard_set_gradient_ready(
        shard,
        ptr::null(),
        1,
        Some(count_one),
        user_data,
        None,
    ))?;
    let mut loss = fsdp2_tensor::default();
    let mut outputs = 0;
    check(fsdp2_module_forward(
        module,
        batch.as_ptr(),
        batch.len(),
        0,
        &mut loss,
        1,
        &mut outputs,
    ))?;
    check(fsdp2_tensor_backward(loss))?;
    check(fsdp2_shard_set_gradient_ready(
        shard,
        ptr::null(),
        1,
        None,
        ptr::null_mut(),
        None,
    ))?;
    for tensor in batch.into_iter().chain([loss]) {
        check(fsdp2_tensor_destroy(tensor))?;
    }
    check(fsdp2_loader_destroy(loader))?;
    let mut parameters = 0;
    check(fsdp2_shard_get_parameter_count(shard, &mut parameters))?;
    Ok(format!(
        "gradients ready: {} of {} parameters",
        ready.get(),
        parameters
    ))
}

unsafe fn check(status: fsdp2_status) -> Result<(), String> {
    if status == FSDP2_OK {
        return Ok(());
    }
    let mut record = sized!(fsdp2_error_info);
    fsdp2_error_last(&mut record);
    let text = |string| CStr::from_ptr(string).to_string_lossy();
    Err(format!(
        "{}: {} ({})",
        text(record.function),
        text(record.message),
        text(fsdp2_status_name(status))
    ))
}
