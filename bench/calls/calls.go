// What a call costs: calls BATCHES. Prints for each call the ns of one in the fastest batch, of one with the destruction of its result,
// and the latter's mean over all batches.
package main

import (
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"time"

	"fsdp2"
)

const (
	callsInABatch = 1000
	heldResults   = 50 // before they are destroyed
)

var elements = []float32{1, 2, 3, 4}

func check(err error) {
	if err != nil {
		log.Fatal("calls: ", err)
	}
}

func measure(name string, batches int, call func() *fsdp2.Tensor) {
	fastest, fastestOfBoth, all := math.Inf(1), math.Inf(1), 0.0
	var held [heldResults]*fsdp2.Tensor
	for batch := 0; batch < batches; batch++ {
		var calls, both time.Duration
		for done := 0; done < callsInABatch; done += heldResults {
			start := time.Now()
			for i := range held {
				held[i] = call()
				check(held[i].Err())
			}
			calls += time.Since(start)
			for _, result := range held {
				check(result.Close())
			}
			both += time.Since(start)
		}
		fastest = math.Min(fastest, float64(calls)/callsInABatch)
		fastestOfBoth = math.Min(fastestOfBoth, float64(both)/callsInABatch)
		all += float64(both) / callsInABatch / float64(batches)
	}
	fmt.Printf("%s %.1f %.1f %.1f\n", name, fastest, fastestOfBoth, all)
}

func create() *fsdp2.Tensor {
	tensor, err := fsdp2.FromSlice(elements)
	check(err)
	return tensor
}

func main() {
	batches := 100
	if len(os.Args) > 1 {
		given, err := strconv.Atoi(os.Args[1])
		check(err)
		batches = given
	}
	x := create()
	defer x.Close()
	same, err := fsdp2.NewCustomModule("Same", nil, func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
		return inputs, nil
	})
	check(err)
	defer same.Close()
	measure("tensor", batches, create)
	measure("operator", batches, func() *fsdp2.Tensor { return x.Add(x) })
	measure("forward", batches, func() *fsdp2.Tensor { return same.Forward(x) })
}
