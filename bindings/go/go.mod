module fsdp2

go 1.19
