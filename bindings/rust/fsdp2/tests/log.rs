//! There is one log in a process, so this test has one of its own.

mod common;

use std::sync::{Arc, Mutex};

use common::{llama_on, on_ranks};
use fsdp2::{log, LogLevel};

#[test]
fn log_records_arrive_in_the_languages_callback() {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let sink = messages.clone();
    log::set(LogLevel::Debug, move |record| {
        assert!(!record.category.is_empty() && record.time.elapsed().is_ok());
        let inside = fsdp2::runtime::describe().unwrap_err();
        assert_eq!(inside.status(), fsdp2::Status::Busy);
        let line = format!("{:?} {:?} {}", record.level, record.rank, record.message);
        sink.lock().unwrap().push(line);
        panic!("which nobody hears of");
    })
    .unwrap();
    on_ranks(2, |_, mesh| drop(llama_on(&mesh)));
    log::set_standard_error(LogLevel::Warning).unwrap();
    assert_eq!(Arc::strong_count(&messages), 1, "the closure is released");
    let messages = messages.lock().unwrap();
    assert!(
        messages.iter().any(|line| line.contains("Some(1)")),
        "{messages:?}"
    );
}
