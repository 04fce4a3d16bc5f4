//! Profiles: a process takes one at a time, so that these are one test.

use std::fs;
use std::path::Path;

use fsdp2::{Profile, Result, Status, Tensor};

mod common;

fn relu() -> Result<f64> {
    Tensor::from_slice(&[-1f32], &[1])?.relu()?.value()
}

#[test]
fn a_profile_is_a_table_and_a_trace() -> Result<()> {
    let status = Profile::describe().unwrap_err().status();
    assert_eq!(status, Status::NotFound);
    let profile = Profile::start()?;
    assert_eq!(relu()?, 0.0);
    profile.stop(None)?;
    assert!(Profile::describe()?.contains("\naten::relu "));

    let trace = common::directory("profile").join("trace.json");
    let profile = Profile::start()?;
    relu()?;
    profile.stop(Some(&trace))?;
    assert!(fs::read_to_string(&trace)
        .unwrap()
        .contains("\"aten::relu\""));

    a_profile_ends_with_its_value(&trace)
}

fn a_profile_ends_with_its_value(trace: &Path) -> Result<()> {
    let stopped_with = |path: &Path| Profile::start()?.stop(Some(path));
    let status = stopped_with(&trace.join("no")).unwrap_err().status();
    assert_eq!(status, Status::Io);
    for no_path in ["", "a\0b"] {
        let status = stopped_with(no_path.as_ref()).unwrap_err().status();
        assert_eq!(status, Status::InvalidArgument);
    }
    drop(Profile::start()?);
    let _one = Profile::start()?;
    assert_eq!(Profile::start().unwrap_err().status(), Status::WrongState);
    Ok(())
}
