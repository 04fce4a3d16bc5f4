// Below the binding's path, because its raw layer is an internal package.
module fsdp2/examples

go 1.19

require fsdp2 v0.0.0

replace fsdp2 => ../../bindings/go
