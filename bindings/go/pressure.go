package fsdp2

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// The collector goes by what Go has allocated, and the few bytes of a Tensor may stand for megabytes of the library's. Left to itself, it
// would not run once before a program that closes nothing has used up the machine. So it also runs whenever the process has grown by
// growthBetweenCollections since it was smallest.
const (
	guardsBetweenLooks       = 64
	growthBetweenCollections = 1 << 30
	longestWait              = 64 * time.Millisecond
)

var (
	newGuards   int64
	growthLimit int64 // bytes of the process at which the collector runs next; 0: not known yet
)

// lookAtMemory is called with each guard that is made. Programs that close what they have made, or leave it to scopes, make few.
func lookAtMemory() {
	if atomic.AddInt64(&newGuards, 1)%guardsBetweenLooks != 0 {
		return
	}
	resident := residentBytes()
	if resident == 0 {
		return
	}
	limit, next := atomic.LoadInt64(&growthLimit), resident+growthBetweenCollections
	isOver := limit != 0 && resident > limit
	if limit != 0 && !isOver && next >= limit {
		return
	}
	if !atomic.CompareAndSwapInt64(&growthLimit, limit, next) || !isOver {
		return
	}
	runtime.GC()
	// The tensors end on the collector's goroutine, which may be slower than the one that makes the next.
	for wait := time.Millisecond; wait <= longestWait && residentBytes() > limit; wait *= 2 {
		time.Sleep(wait)
	}
}

// residentBytes is the memory of the process, or 0 if the system does not tell.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
