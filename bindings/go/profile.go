package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Profile runs body and records what it computes and waits for, by LibTorch's own profiler: operators, and the phases of units as ranges
// that are named as in PyTorch, such as "FSDP::all_gather (model.layers.0)". traceFile gets all events in Chrome's trace format; "" for
// none. If body fails, the profile ends without a trace. A process takes one profile at a time: ErrWrongState if another one is being
// taken. The profile is of this goroutine alone, which keeps its thread meanwhile.
func Profile(traceFile string, body func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := capi.ProfileStart(); err != nil {
		return failure(err)
	}
	stopped := false
	defer func() {
		if !stopped { // body or the name of the file was no good
			_ = capi.ProfileStop("")
		}
	}()
	if err := body(); err != nil {
		return err
	}
	err := failure(capi.ProfileStop(traceFile))
	stopped = err == nil
	return err
}

// DescribeProfile returns the last profile as a table of operators and ranges, by their own time. ErrNotFound before the first one.
func DescribeProfile() (string, error) { return text(capi.ProfileDescribe) }
