package fsdp2_test

import (
	"errors"
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
