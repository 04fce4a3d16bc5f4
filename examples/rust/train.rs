//! Fine-tunes a Hugging Face model for five steps on all ranks of the job:
//!
//! `fsdp2 run --nproc-per-node 2 -- train MODEL_DIRECTORY TOKEN_FILE`

use std::ffi::{CStr, CString};
use std::mem::{size_of, MaybeUninit};
use std::process::ExitCode;
use std::{env, ptr};

use fsdp2_sys::*;

fn main() -> ExitCode {
    let arguments: Vec<CString> = env::args()
        .skip(1)
        .map(|text| CString::new(text).expect("arguments have no NUL"))
        .collect();
    let outcome = match arguments.as_slice() {
        [directory, token_file] => unsafe { train(directory, token_file) },
        _ => Err("usage: train MODEL_DIRECTORY TOKEN_FILE".to_string()),
    };
    if let Err(message) = outcome {
        eprintln!("train: {message}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

unsafe fn train(directory: &CStr, token_file: &CStr) -> Result<(), String> {
    check(fsdp2_check_version(FSDP2_HEADER_VERSION))?;
    let mut mesh = fsdp2_mesh::default();
    check(fsdp2_mesh_create(ptr::null(), &mut mesh))?;
    let mut job = fsdp2_mesh_info {
        struct_size: size_of::<fsdp2_mesh_info>() as u32,
        ..Default::default()
    };
    check(fsdp2_mesh_get_info(mesh, &mut job))?;

    let mut module = fsdp2_module::default();
    check(fsdp2_module_from_pretrained(
        directory.as_ptr(),
        ptr::null(),
        &mut module,
    ))?;
    let mut model = fsdp2_module_info {
        struct_size: size_of::<fsdp2_module_info>() as u32,
        ..Default::default()
    };
    check(fsdp2_module_get_info(module, &mut model))?;
    let mut shard = fsdp2_shard::default();
    check(fsdp2_shard_create(module, mesh, ptr::null(), &mut shard))?;

    let adamw = fsdp2_adamw_options {
        lr: 3e-3,
        beta2: 0.95,
        weight_decay: 0.1,
        ..options(fsdp2_adamw_options_init)?
    };
    let mut optimizer = fsdp2_optimizer::default();
    check(fsdp2_optimizer_create_adamw(shard, &adamw, &mut optimizer))?;
    let data = fsdp2_loader_options {
        sequence_length: 32,
        global_batch: 8,
        vocab_size: model.vocab_size,
        ..options(fsdp2_loader_options_init)?
    };
    let mut loader = fsdp2_loader::default();
    check(fsdp2_loader_open(
        mesh,
        token_file.as_ptr(),
        &data,
        &mut loader,
    ))?;

    let mut step = fsdp2_step::default();
    check(fsdp2_step_create(shard, optimizer, ptr::null(), &mut step))?;
    for _ in 0..5 {
        let mut batch = [fsdp2_tensor::default(); 2]; // tokens, labels
        let [tokens, labels] = &mut batch;
        check(fsdp2_loader_next(loader, tokens, labels))?;
        let mut result = fsdp2_step_result {
            struct_size: size_of::<fsdp2_step_result>() as u32,
            ..Default::default()
        };
        check(fsdp2_step_run(
            step,
            batch.as_ptr(),
            batch.len(),
            &mut result,
        ))?;
        for tensor in batch {
            check(fsdp2_tensor_destroy(tensor))?;
        }
        if job.rank == 0 {
            println!("step {} loss {:.6}", result.step, result.loss);
        }
    }

    check(fsdp2_step_destroy(step))?;
    check(fsdp2_loader_destroy(loader))?;
    check(fsdp2_optimizer_destroy(optimizer))?;
    check(fsdp2_shard_destroy(shard))?;
    check(fsdp2_module_destroy(module))?;
    check(fsdp2_mesh_destroy(mesh))?;
    match fsdp2_live_handles() {
        0 => Ok(()),
        live => Err(format!("{live} live handles")),
    }
}

/// The defaults that the library knows.
unsafe fn options<T>(
    init: unsafe extern "C" fn(*mut T, usize) -> fsdp2_status,
) -> Result<T, String> {
    let mut options = MaybeUninit::zeroed();
    check(init(options.as_mut_ptr(), size_of::<T>()))?;
    Ok(options.assume_init())
}

unsafe fn check(status: fsdp2_status) -> Result<(), String> {
    if status == FSDP2_OK {
        return Ok(());
    }
    let mut record = fsdp2_error_info {
        struct_size: size_of::<fsdp2_error_info>() as u32,
        ..Default::default()
    };
    fsdp2_error_last(&mut record);
    let text = |string| CStr::from_ptr(string).to_string_lossy();
    Err(format!(
        "{}: {} ({})",
        text(record.function),
        text(record.message),
        text(fsdp2_status_name(status))
    ))
}
