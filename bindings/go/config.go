package fsdp2

import (
	"unsafe"

	"fsdp2/internal/capi"
)

// ConfigOptions lower a configuration, beside its text.
type ConfigOptions struct {
	Name      string   // what messages call the text, usually the name of its file; "": "config"
	Role      string   // the one to train, where the configuration has several
	Sets      []string // assignments "path.to.key=value" to keys of the configuration, which go before it
	WorldSize int      // settles what depends on the number of ranks, such as global_batch; 0 leaves it open
}

// Config is the configuration of a training run as a plan: YAML with every key of fsdp2 train once, in its own words, and after each the
// place that its value comes from. It is a text of the program's, which any goroutine may use and nobody closes. LowerConfig makes it.
type Config struct{ plan string }

// LowerConfig lowers a file of ROLL, of MindSpeed-MM, the simple file of the GPT presets, a plain one, or a plan again, so that a trainer
// reads what fsdp2 train reads; docs/yaml.md has the keys. options nil: none. Errors: ErrInvalidArgument, which names place and key (an
// unknown key, a value that a key does not take, a job of another size, what libfsdp2 cannot do).
func LowerConfig(yaml string, options *ConfigOptions) (Config, error) {
	var given ConfigOptions
	if options != nil {
		given = *options
	}
	if given.Name == "" {
		given.Name = "config"
	}
	plan, err := text(func(buf *byte, cap uint, needed *uint) error {
		return withNames(given.Sets, func(sets *unsafe.Pointer, n uint) error {
			return capi.ConfigLower(yaml, given.Name, given.Role, sets, n, to32(given.WorldSize), buf, cap, needed)
		})
	})
	return Config{plan}, err
}

// String returns the plan.
func (c Config) String() string { return c.plan }

// Value returns the value of a key: "0.001", "true", or a list as "A,B"; "" where nothing is given. Keys are those of plain files,
// "global_batch" or "global-batch". Errors: ErrNotFound (a key).
func (c Config) Value(key string) (string, error) {
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.ConfigGetValue(c.plan, key, buf, cap, needed)
	})
}

// Shared returns what all ranks must have alike, for Mesh.Agree: "key=value" lines, with the places in the plan as notes.
func (c Config) Shared() (string, error) {
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.ConfigGetShared(c.plan, buf, cap, needed)
	})
}
