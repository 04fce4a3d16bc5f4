package fsdp2

import (
	"math"

	"fsdp2/internal/capi"
)

// text gets a text of the library: its length first, then itself, until both agree.
func text(get func(buf *byte, cap uint, needed *uint) error) (string, error) {
	bytes, err := list(get)
	if err != nil || len(bytes) == 0 {
		return "", err
	}
	return string(bytes[:len(bytes)-1]), nil
}

// list gets an array of the library in the same way.
func list[T any](get func(array *T, cap uint, needed *uint) error) ([]T, error) {
	var needed uint
	if err := get(nil, 0, &needed); err != nil {
		return nil, failure(err)
	}
	for needed > 0 {
		array := make([]T, needed)
		err := get(&array[0], uint(len(array)), &needed)
		if err == nil {
			return array[:needed], nil
		}
		if failed, ok := err.(*capi.Error); !ok || failed.Status != capi.EBufferTooSmall || needed <= uint(len(array)) {
			return nil, failure(err)
		}
	}
	return nil, nil
}

func flag(value bool) int32 {
	if value {
		return 1
	}
	return 0
}

// first is the address of a slice's elements, for a function that does not keep it; nil for none.
func first[T any](values []T) *T {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

func ints[T int32 | int64 | uint](values []T) []int {
	result := make([]int, len(values))
	for i, value := range values {
		result[i] = int(value)
	}
	return result
}

func int64s(values []int) []int64 {
	result := make([]int64, len(values))
	for i, value := range values {
		result[i] = int64(value)
	}
	return result
}

func int32s(values []int) []int32 {
	result := make([]int32, len(values))
	for i, value := range values {
		result[i] = to32(value)
	}
	return result
}

// to32 keeps a number that is out of range out of range.
func to32(value int) int32 {
	if value > math.MaxInt32 {
		return math.MaxInt32
	}
	if value < math.MinInt32 {
		return math.MinInt32
	}
	return int32(value)
}
