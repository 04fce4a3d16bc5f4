module calls

go 1.19

require fsdp2 v0.0.0

replace fsdp2 => ../../bindings/go
