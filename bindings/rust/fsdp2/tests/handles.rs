//! Handles are counted for the whole process, so this test has one of its own.

mod common;

use common::{llama_on, on_ranks, regression, regression_data, tiny_tokens};
use fsdp2::{runtime, Checkpoint, Optimizer, Scope, Step, Tensor};

#[test]
fn dropping_in_any_order_leaves_no_live_handle() {
    on_ranks(2, |rank, mesh| {
        let (module, shard) = llama_on(&mesh);
        let optimizer = Optimizer::create_adamw(&shard, &Default::default()).unwrap();
        let step = Step::create(&shard, &optimizer, &Default::default()).unwrap();
        let loader = tiny_tokens(&mesh);
        drop((mesh, module, shard));
        let [tokens, labels] = loader.next().unwrap();
        drop(optimizer);
        step.run([&tokens, &labels]).unwrap();
        drop(step);

        let mesh = common::alone();
        let module = regression().unwrap();
        let loss = module.forward_one(&regression_data(rank)).unwrap();
        drop((mesh, module));
        loss.backward().unwrap();
    });
    on_ranks(2, |_, mesh| {
        let (_module, shard) = llama_on(&mesh);
        let state = Checkpoint::of(&shard).state(true).unwrap();
        drop(shard);
        state.gather(false).unwrap();
    });
    let scope = Scope::create().unwrap();
    let kept = scope
        .add(Tensor::from_slice(&[1f32], &[1]).unwrap())
        .unwrap();
    let _ = scope.call("aten::exp", &[(&kept).into()]).unwrap();
    let failed = fsdp2::op!("aten::add.Tensor", &kept, "text");
    assert!(failed.is_err() && runtime::live_handles() > 0);
    drop(scope);
    assert_eq!(runtime::live_handles(), 0);
}
