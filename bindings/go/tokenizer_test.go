package fsdp2_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"fsdp2"
)

func TestTextBecomesTokensAndComesBack(t *testing.T) {
	defer noHandles(t)
	bytes, err := fsdp2.OpenTokenizer("")
	must(t, err)
	defer bytes.Close()
	info, err := bytes.Info()
	must(t, err)
	if info != (fsdp2.TokenizerInfo{VocabSize: 256}) {
		t.Error("info:", info)
	}
	tokens, err := bytes.Encode("a\u00e9", true)
	must(t, err)
	equal(t, "tokens", tokens, []int64{0x61, 0xc3, 0xa9})
	text, err := bytes.Decode(tokens, false)
	must(t, err)
	if text != "a\u00e9" {
		t.Error("text:", text)
	}
	tokens, err = bytes.EncodeRecord(`{"text": "b"}`)
	must(t, err)
	equal(t, "tokens of a record", tokens, []int64{0x62, 0})
	prompt, err := bytes.EncodePrompt(`{"prompt": "b", "response": "c"}`, "", "")
	must(t, err)
	equal(t, "tokens of a prompt", prompt.Tokens, []int64{0x62})
	if len(prompt.VisionInputs) != 0 {
		t.Error("images of a prompt without any:", len(prompt.VisionInputs))
	}
	if _, err := bytes.EncodePrompt(`{"messages": []}`, "", ""); !errors.Is(err, fsdp2.ErrCorruptData) {
		t.Error("a chat without a question:", err)
	}
	if _, err := bytes.EncodeRecord("{"); !errors.Is(err, fsdp2.ErrCorruptData) {
		t.Error("a bad record:", err)
	}
	if _, err := fsdp2.OpenTokenizer("/no/such/tokenizer.json"); !errors.Is(err, fsdp2.ErrNotFound) {
		t.Error("no file:", err)
	}
}

func TestAMixtureTakesWindowsByWeight(t *testing.T) {
	defer noHandles(t)
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	must(t, os.WriteFile(first, []byte("aabbccd"), 0o600))
	must(t, os.WriteFile(second, []byte("xxyyz"), 0o600))
	mesh, err := fsdp2.NewMesh(context.Background(), nil)
	must(t, err)
	defer mesh.Close()
	options := fsdp2.LoaderOptions{Format: fsdp2.TokensBytes, SequenceLength: 2, GlobalBatch: 4, VocabSize: 256, ReadAhead: 2}
	loader, err := fsdp2.OpenMixture(mesh, []string{first, second}, []float64{3, 1}, options)
	must(t, err)
	defer loader.Close()
	info, err := loader.Info()
	must(t, err)
	if info != (fsdp2.LoaderInfo{Windows: 5, StepsPerEpoch: 2}) {
		t.Error("info:", info)
	}
	tokens, labels, err := loader.Next()
	must(t, err)
	defer tokens.Close()
	defer labels.Close()
	rows, err := fsdp2.ToSlice[int64](tokens)
	must(t, err)
	equal(t, "windows", []int64{rows[0], rows[2], rows[4], rows[6]}, []int64{'a', 'b', 'x', 'c'})
	if _, err := fsdp2.OpenMixture(mesh, []string{first}, []float64{0}, options); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Error("a weight of 0:", err)
	}
}
