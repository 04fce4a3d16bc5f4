//! Versions, errors, defaults: what needs no model.

mod common;

use std::error::Error as _;

use fsdp2::{
    AdamwOptions, Class, Error, GenerateOptions, InferOptions, LoaderOptions, MeshOptions, Module,
    ParameterOptions, PlanOptions, SaveOptions, ShardOptions, Status, StepOptions, Tensor,
};

#[test]
fn versions_agree() {
    assert_eq!(fsdp2::runtime::version(), fsdp2_sys::FSDP2_HEADER_VERSION);
    fsdp2::runtime::check_version().unwrap();
    let description = fsdp2::runtime::describe().unwrap();
    assert!(description.contains("2.11"), "{description}");
}

#[test]
fn a_failed_call_gives_code_class_and_message() {
    let error = Module::from_pretrained("/no/such/model", &Default::default()).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert_eq!((error.code(), error.class()), (201, Class::Unavailable));
    assert_eq!(error.function(), "fsdp2_module_from_pretrained");
    assert_eq!(error.rank(), None);
    assert!(error.message().contains("/no/such/model"), "{error}");
    assert!(
        error.to_string().ends_with("(FSDP2_E_NOT_FOUND)"),
        "{error}"
    );
    assert!(error.source().is_none());
    assert!(error.into_panic().is_err());
}

#[test]
fn an_error_knows_its_rank() {
    let mesh = common::alone();
    let error = mesh.dim_index("pp").unwrap_err();
    assert_eq!((error.status(), error.rank()), (Status::NotFound, Some(0)));
}

#[test]
fn texts_that_c_cannot_take_are_refused() {
    let error = Module::from_config("{\0}", &Default::default()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    let error = fsdp2::op::schema("aten::\0").unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    let error = fsdp2::op!(&format!("aten::{}", "x".repeat(5000))).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

#[test]
fn options_default_as_the_librarys() {
    let adamw = AdamwOptions::default();
    assert_eq!((adamw.lr, adamw.beta1, adamw.beta2), (1e-3, 0.9, 0.999));
    assert_eq!((adamw.eps, adamw.weight_decay), (1e-8, 1e-2));
    let mesh = MeshOptions::default();
    assert_eq!(
        (mesh.rank, mesh.timeout_ms, mesh.fsdp_size),
        (-1, 600_000, 0)
    );
    assert_eq!((mesh.shape.len(), mesh.rendezvous), (0, None));
    let step = StepOptions::default();
    assert_eq!((step.accumulate, step.loss_scale_interval), (1, 2000));
    assert_eq!(step.max_skips_in_row, 100);
    assert_eq!(LoaderOptions::default().accumulate, 1);
    assert_eq!(GenerateOptions::default().max_new_tokens, 64);
    assert_eq!(InferOptions::default().temperature, 1.0);
    assert_eq!(PlanOptions::default().optimizer_states, 2.0);
    assert_eq!(ParameterOptions::default().std, 0.02);
    assert_eq!(SaveOptions::default().dtype, None);
    let shard = ShardOptions::default();
    assert_eq!(shard.reshard_after_forward, fsdp2::Reshard::Auto);
    assert_eq!((shard.param_dtype, shard.wrap_kinds.len()), (None, 0));
    assert!(format!("{shard:?}").contains("wrap_kinds"));
}

#[test]
fn a_closed_object_refuses_politely() {
    // `destroy` takes the object, so that the compiler refuses what comes after; see Tensor::destroy. Handles that outlive their
    // object are those of a scope, which has its borrow checked: see Scope.
    let tensor = Tensor::from_slice(&[1f32], &[]).unwrap();
    let second = tensor.duplicate().unwrap();
    tensor.destroy().unwrap();
    assert_eq!(second.value().unwrap(), 1.0);
    common::alone().destroy().unwrap();
}

#[test]
fn what_may_cross_threads_does() {
    fn send<T: Send>() {}
    fn share<T: Send + Sync>() {}
    share::<fsdp2::Mesh>();
    share::<Tensor>();
    share::<fsdp2::Scope>();
    share::<Error>();
    send::<Module>();
    send::<fsdp2::Shard>();
    send::<fsdp2::Optimizer>();
    send::<fsdp2::Loader>();
    send::<fsdp2::Step>();
    send::<fsdp2::State>();
}
