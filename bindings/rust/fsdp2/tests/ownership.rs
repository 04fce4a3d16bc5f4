//! Who keeps whom alive.

#[test]
fn children_end_with_their_module() {
    let inner = fsdp2::Module::create_custom("Inner", &Default::default(), |forward| {
        Ok(forward.input(0)?.exp()?)
    })
    .unwrap();
    let part = inner.duplicate().unwrap();
    let outer = fsdp2::Module::create_custom("Outer", &Default::default(), move |forward| {
        Ok(inner.forward([forward.input(0)?])?)
    })
    .unwrap();
    outer.add_child("inner", &part).unwrap();
    drop((outer, part));
    fsdp2::runtime::describe().unwrap(); // a call in which releases run
    assert_eq!(fsdp2::runtime::live_handles(), 0);
}
