package fsdp2_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fsdp2"
)

const rollYAML = `actor_train:
  model_args: {model_name_or_path: models/tiny-llama}
  training_args: {learning_rate: 3.0e-3, max_steps: 3,
                  per_device_train_batch_size: 2, gradient_accumulation_steps: 1}
  strategy_args: {strategy_config: {reshard_after_forward: true}}
`

func TestAConfigurationGivesTheValuesOfARun(t *testing.T) {
	config, err := fsdp2.LowerConfig(rollYAML, &fsdp2.ConfigOptions{Name: "run.yaml", WorldSize: 4,
		Sets: []string{"actor_train.training_args.learning_rate=1.0e-4"}})
	must(t, err)
	again, err := fsdp2.LowerConfig(config.String(), nil)
	must(t, err)
	for _, lowered := range []fsdp2.Config{config, again} {
		for key, expected := range map[string]string{
			"lr":                    "0.0001",
			"reshard-after-forward": "true",
			"global_batch":          "8", // 2 windows on each of 4 ranks
			"tokens":                "",
		} {
			if value, err := lowered.Value(key); err != nil || value != expected {
				t.Errorf("%s: expected %q, found %q, %v", key, expected, value, err)
			}
		}
	}
	if !strings.Contains(config.String(), "# run.yaml:3 actor_train.training_args.max_steps\n") {
		t.Errorf("found %s", config)
	}
	if shared, err := config.Shared(); err != nil || !strings.Contains(shared, "lr=0.0001") {
		t.Errorf("found %q, %v", shared, err)
	}
}

func TestMistakesInAConfigurationAreToldWithTheirPlace(t *testing.T) {
	for _, wrong := range []struct {
		yaml    string
		options *fsdp2.ConfigOptions
		message string
	}{
		{"steps: 2\nlrr: 1\n", nil, "config:2: unknown key lrr; did you mean lr?"},
		{rollYAML, &fsdp2.ConfigOptions{Role: "critic"}, "there is no role critic; the roles are actor_train"},
		{"world_size: 2\n", &fsdp2.ConfigOptions{Name: "run.yaml", WorldSize: 4},
			"the configuration is for 2 ranks (run.yaml:1 world_size)"},
		{"lr: 1\x00", nil, "UTF-8"},
	} {
		_, err := fsdp2.LowerConfig(wrong.yaml, wrong.options)
		contains(t, err, wrong.message)
		if !errors.Is(err, fsdp2.ErrInvalidArgument) {
			t.Errorf("found %v", err)
		}
	}
	config, err := fsdp2.LowerConfig("lr: 1\n", nil)
	must(t, err)
	if _, err := config.Value("lrr"); !errors.Is(err, fsdp2.ErrNotFound) {
		t.Errorf("found %v", err)
	}
}

func TestRanksWithDifferentConfigurationsAreToldTheKey(t *testing.T) {
	for _, err := range onRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		config, err := fsdp2.LowerConfig([]string{"lr: 1.0e-3", "\nlr: 2.0e-3"}[rank], nil)
		if err != nil {
			return err
		}
		shared, err := config.Shared()
		if err != nil {
			return err
		}
		return mesh.Agree("options", shared)
	}) {
		contains(t, err, "options: the ranks differ in --lr: rank 0 has 0.001 (")
	}
}

// A plain configuration of a small model and a text, both files of a folder of the test's own.
func smallRun(t *testing.T) fsdp2.Config {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"config.json": `{"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
			"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}`,
		"text": strings.Repeat("Fiat lux. ", 200),
	} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	config, err := fsdp2.LowerConfig(fmt.Sprintf("model_config: %s/config.json\ntext: %s/text\nepochs: 1\nkeep_memory: false\n", folder, folder), nil)
	must(t, err)
	return config
}

// firstLoss is that of a rank of a job, of a step that the configuration describes.
func firstLoss(config fsdp2.Config, job *fsdp2.Mesh) (float64, error) {
	mesh, err := config.MakeMesh(job)
	if err != nil {
		return 0, err
	}
	defer mesh.Close()
	module, err := config.MakeModule()
	if err != nil {
		return 0, err
	}
	defer module.Close()
	loader, err := config.MakeLoader(module, mesh)
	if err != nil {
		return 0, err
	}
	defer loader.Close()
	data, err := loader.Info()
	if err != nil {
		return 0, err
	}
	if config, err = config.SettleEpochs(data.StepsPerEpoch); err != nil {
		return 0, err
	}
	shard, err := config.MakeShard(module, mesh)
	if err != nil {
		return 0, err
	}
	defer shard.Close()
	if err := shard.LoadValues(); err != nil {
		return 0, err
	}
	optimizer, err := config.MakeOptimizer(shard)
	if err != nil {
		return 0, err
	}
	defer optimizer.Close()
	step, err := config.MakeStep(shard, optimizer)
	if err != nil {
		return 0, err
	}
	defer step.Close()
	tokens, labels, err := loader.Next()
	if err != nil {
		return 0, err
	}
	defer tokens.Close()
	defer labels.Close()
	result, err := step.Run(tokens, labels)
	return result.Loss, err
}

func TestTheObjectsOfAConfigurationTrainTheSameOnAnyRanks(t *testing.T) {
	config := smallRun(t)
	must(t, config.SetUpProcess())
	job, err := config.JoinJob()
	must(t, err)
	expected, err := firstLoss(config, job)
	must(t, err)
	must(t, job.Close())
	mustOnRanks(t, 2, func(job *fsdp2.Mesh, rank int) error {
		loss, err := firstLoss(config, job)
		if err == nil && math.Abs(loss-expected) > 1e-5*expected {
			t.Errorf("rank %d: expected %g, found %g", rank, expected, loss)
		}
		return err
	})
}
