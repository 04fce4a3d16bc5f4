package fsdp2_test

import (
	"sync"
	"testing"
	"time"

	"fsdp2"
)

func TestLogRecordsArriveInTheLanguagesCallback(t *testing.T) {
	var guard sync.Mutex
	var records []fsdp2.LogRecord
	must(t, fsdp2.SetLog(fsdp2.LogDebug, func(record fsdp2.LogRecord) {
		guard.Lock()
		defer guard.Unlock()
		records = append(records, record)
		panic("in a log function")
	}))
	mustOnRanks(t, 1, func(mesh *fsdp2.Mesh, rank int) error { return mesh.Barrier() })
	must(t, fsdp2.SetLog(fsdp2.LogWarning, nil))
	guard.Lock()
	defer guard.Unlock()
	if len(records) == 0 {
		t.Fatal("no records")
	}
	if record := records[0]; record.Message == "" || record.Category == "" || time.Since(record.Time) > time.Minute {
		t.Errorf("%+v", record)
	}
}
