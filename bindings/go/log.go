package fsdp2

import (
	"time"

	"fsdp2/internal/capi"
)

// LogLevel says how much a record matters.
type LogLevel int32

// The levels.
const (
	LogDebug   LogLevel = capi.LogDebug
	LogInfo    LogLevel = capi.LogInfo
	LogWarning LogLevel = capi.LogWarning
	LogError   LogLevel = capi.LogError
	LogOff     LogLevel = capi.LogOff
)

// LogRecord is a message of the library.
type LogRecord struct {
	Level    LogLevel
	Rank     int // -1: none
	Time     time.Time
	Category string // "comm", "fsdp", ...
	Message  string
}

// LogFunc takes the library's messages. It runs inside calls of the library, possibly of several goroutines at once, and must not
// call the library. What it panics by is printed to standard error.
type LogFunc func(record LogRecord)

// SetLog sends records of at least minLevel to fn, or to standard error if fn is nil, in place of where they went before. By default,
// warnings and errors go to standard error.
func SetLog(minLevel LogLevel, fn LogFunc) error {
	if fn == nil {
		return failure(capi.LogSet(int32(minLevel), nil, nil, nil))
	}
	return keep(capi.LogFunc(func(record *capi.LogRecord) {
		fn(LogRecord{
			Level:    LogLevel(record.Level),
			Rank:     int(record.Rank),
			Time:     time.Unix(0, record.TimeNs),
			Category: capi.Text(record.Category),
			Message:  capi.Text(record.Message),
		})
	}), func(userData userData) error {
		return capi.LogSet(int32(minLevel), capi.LogCallback, userData, capi.ReleaseCallback)
	})
}
