// Package fsdp2 is the C headers, a copy of include/fsdp2. As a package they go where the module goes ("go mod vendor" included).
package fsdp2
