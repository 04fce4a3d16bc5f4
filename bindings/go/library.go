package fsdp2

import "fsdp2/internal/capi"

// LoadLibrary opens libfsdp2.so at a path. Without it, the first call that needs the library opens what the environment variable
// FSDP2_LIBRARY names or, without one, libfsdp2.so.0 where the system's loader finds it. A call that does not find it fails with
// ErrNotFound, and one that finds another version with ErrABIMismatch. A library that is open stays, and LoadLibrary does nothing.
func LoadLibrary(path string) error { return failure(capi.Load(path)) }
