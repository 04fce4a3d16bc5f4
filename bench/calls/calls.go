// What a call costs: calls BATCHES. Prints for each call the ns of the fastest batch, and of all.
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

const callsInABatch = 1000

var elements = []float32{1, 2, 3, 4}

func check(err error) {
	if err != nil {
		log.Fatal("calls: ", err)
	}
}

func measure(name string, batches int, call func() *fsdp2.Tensor) {
	fastest, all := math.Inf(1), 0.0
	for batch := 0; batch < batches; batch++ {
		start := time.Now()
		for i := 0; i < callsInABatch; i++ {
			made := call()
			check(made.Err())
			check(made.Close())
		}
		taken := float64(time.Since(start)) / callsInABatch
		fastest = math.Min(fastest, taken)
		all += taken / float64(batches)
	}
	fmt.Printf("%s %.1f %.1f\n", name, fastest, all)
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
