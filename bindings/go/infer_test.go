package fsdp2_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"fsdp2"
)

// words makes tokens [rows,6] of a vocabulary of 256.
func words(rows, begin int) (*fsdp2.Tensor, error) {
	const length = 6
	tokens := make([]int64, rows*length)
	for i := range tokens {
		tokens[i] = int64((begin + 7*i) % 256)
	}
	return fsdp2.FromSlice(tokens, rows, length)
}

// nextWords are what a model gives to each next token by its logits.
func nextWords(model *fsdp2.Module, tokens *fsdp2.Tensor) (logProbs, entropies []float64, err error) {
	all, err := model.ForwardAll(fsdp2.ForwardOptions{NoGrad: true}, tokens)
	if err != nil {
		return nil, nil, err
	}
	defer all[0].Close()
	logits, err := fsdp2.ToSlice[float32](all[0])
	if err != nil {
		return nil, nil, err
	}
	ids, err := fsdp2.ToSlice[int64](tokens)
	if err != nil {
		return nil, nil, err
	}
	vocabulary := len(logits) / len(ids)
	for i := range ids {
		if i%6 == 5 {
			continue
		}
		sum, weighted := 0.0, 0.0
		for _, logit := range logits[i*vocabulary : (i+1)*vocabulary] {
			sum += math.Exp(float64(logit))
			weighted += math.Exp(float64(logit)) * float64(logit)
		}
		logProbs = append(logProbs, float64(logits[i*vocabulary+int(ids[i+1])])-math.Log(sum))
		entropies = append(entropies, math.Log(sum)-weighted/sum)
	}
	return logProbs, entropies, nil
}

func near(what string, tensor *fsdp2.Tensor, expected []float64) error {
	found, err := fsdp2.ToSlice[float32](tensor)
	if err != nil {
		return err
	}
	if len(found) != len(expected) {
		return fmt.Errorf("%s: expected %d numbers, found %d", what, len(expected), len(found))
	}
	for i := range found {
		if math.Abs(float64(found[i])-expected[i]) > 1e-5 {
			return fmt.Errorf("%s %d: expected %v, found %v", what, i, expected[i], found[i])
		}
	}
	return nil
}

func TestScoresAreLogProbabilities(t *testing.T) {
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		tokens, err := words(3, 1)
		if err != nil {
			return err
		}
		defer tokens.Close()
		logProbs, entropies, err := nextWords(model, tokens)
		if err != nil {
			return err
		}
		options := fsdp2.DefaultInferOptions()
		options.BatchSize, options.ChunkSize, options.ReshardAfterForward = 2, 4, fsdp2.ReshardNever
		for _, options := range []*fsdp2.InferOptions{nil, &options} {
			err := fsdp2.WithScope(func(scope *fsdp2.Scope) error {
				foundLogProbs, foundEntropies, err := model.Score(options, scope.Use(tokens))
				if err != nil {
					return err
				}
				shape, err := foundLogProbs.Shape()
				if err != nil || fmt.Sprint(shape) != "[3 5]" {
					return fmt.Errorf("shape %v, %v", shape, err)
				}
				return all(near("log-probability", foundLogProbs, logProbs), near("entropy", foundEntropies, entropies))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func TestWrongScoringIsRefused(t *testing.T) {
	defer noHandles(t)
	module, err := newLinear(4, 4)
	must(t, err)
	defer module.Close()
	x := floats(t, make([]float32, 4), 1, 4)
	defer x.Close()
	if a, b, err := module.Score(nil, x); a != nil || b != nil || !errors.Is(err, fsdp2.ErrUnsupported) {
		t.Errorf("found %v, %v, %v", a, b, err)
	}
	if _, err := module.Evaluate(nil, x); !errors.Is(err, fsdp2.ErrUnsupported) {
		t.Errorf("found %v", err)
	}
	model, err := fsdp2.ModuleFromConfig(llama, nil)
	must(t, err)
	defer model.Close()
	tokens, err := words(1, 0)
	must(t, err)
	defer tokens.Close()
	for _, change := range []func(*fsdp2.InferOptions){
		func(options *fsdp2.InferOptions) { options.Temperature = 0 },
		func(options *fsdp2.InferOptions) { options.BatchSize = -1 },
		func(options *fsdp2.InferOptions) { options.ChunkSize = -1 },
		func(options *fsdp2.InferOptions) { options.ReshardAfterForward = 2 },
	} {
		options := fsdp2.DefaultInferOptions()
		change(&options)
		if _, err := model.Evaluate(&options, tokens); !errors.Is(err, fsdp2.ErrInvalidArgument) {
			t.Errorf("%+v: %v", options, err)
		}
	}
}

// Rank 0 has 3 rows, rank 1 one.
func TestEvaluationIsTheMeanOverAllRows(t *testing.T) {
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		whole, err := fsdp2.ModuleFromConfig(llama, &fsdp2.ModuleOptions{Seed: 1})
		if err != nil {
			return err
		}
		defer whole.Close()
		job, err := mesh.Info()
		if err != nil {
			return err
		}
		sum := 0.0
		for rank, rows := range []int{3, 1} {
			tokens, err := words(rows, rank)
			if err != nil {
				return err
			}
			defer tokens.Close()
			logProbs, _, err := nextWords(whole, tokens)
			if err != nil {
				return err
			}
			for _, logProb := range logProbs {
				sum -= logProb
			}
		}
		tokens, err := words(3-2*job.Rank, job.Rank)
		if err != nil {
			return err
		}
		defer tokens.Close()
		options := fsdp2.DefaultInferOptions()
		options.BatchSize = 2 - job.Rank
		together, err := model.Evaluate(&options, tokens)
		if err != nil || together.Labels != 20 || math.Abs(together.Loss-sum/20) > 1e-5 {
			return fmt.Errorf("%+v where %v is expected, %v", together, sum/20, err)
		}
		return nil
	})
}
