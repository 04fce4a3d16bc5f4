package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Tokenizer turns text into tokens and back, by Hugging Face's library, which is in libfsdp2_tokenizers.so, or by bytes. It never changes:
// goroutines may share it.
type Tokenizer struct{ handle }

// TokenizerInfo says what a tokenizer is.
type TokenizerInfo struct {
	HasChatTemplate bool // the files beside it have one, which records of messages take
	VocabSize       int  // one more than its largest token
	EndToken        int  // that ends a text; -1: no file beside it names one
}

// OpenTokenizer opens a tokenizer.json, or that of a directory; "": the tokenizer whose tokens are bytes.
func OpenTokenizer(path string) (*Tokenizer, error) {
	var raw capi.Tokenizer
	return madeTokenizer(&raw, capi.TokenizerOpen(path, &raw))
}

func madeTokenizer(raw *capi.Tokenizer, err error) (*Tokenizer, error) {
	if err != nil {
		return nil, failure(err)
	}
	tokenizer := &Tokenizer{}
	tokenizer.own(tokenizerKind, raw.ID)
	return tokenizer, nil
}

func (t *Tokenizer) raw() capi.Tokenizer {
	if t == nil {
		return capi.Tokenizer{}
	}
	return capi.Tokenizer{ID: t.id}
}

// Info says what the tokenizer is.
func (t *Tokenizer) Info() (TokenizerInfo, error) {
	defer runtime.KeepAlive(t)
	raw := sized[capi.TokenizerInfo]()
	err := capi.TokenizerGetInfo(t.raw(), &raw)
	return TokenizerInfo{raw.HasChatTemplate != 0, int(raw.VocabSize), int(raw.EndToken)}, failure(err)
}

// Encode returns the tokens of a text; with surround also those that the tokenizer puts around one, such as a beginning.
func (t *Tokenizer) Encode(text string, surround bool) ([]int64, error) {
	defer runtime.KeepAlive(t)
	return list(func(tokens *int64, cap uint, needed *uint) error {
		return capi.TokenizerEncode(t.raw(), text, flag(surround), tokens, cap, needed)
	})
}

// EncodeRecord returns the tokens of a line of JSON, as a loader takes it for a record.
func (t *Tokenizer) EncodeRecord(line string) ([]int64, error) {
	defer runtime.KeepAlive(t)
	return list(func(tokens *int64, cap uint, needed *uint) error {
		return capi.TokenizerEncodeRecord(t.raw(), line, tokens, cap, needed)
	})
}

// Prompt is what a model is given to answer a record.
type Prompt struct {
	Tokens       []int64
	VisionInputs []*Tensor // its images and videos, as GenerateOptions takes them, none where it has none; the caller closes them
}

// EncodePrompt returns the prompt of a record that is to be answered: what comes before its response, or before its last message where that
// is the assistant's; a text is a prompt as a whole. Messages become what the chat template makes of them where it opens an answer.
// visionModel is the config.json of a model that sees images, or the directory with it; "": no record has any. Relative names of files count
// from directory; "": the process's own.
func (t *Tokenizer) EncodePrompt(line, visionModel, directory string) (*Prompt, error) {
	defer runtime.KeepAlive(t)
	var raw capi.Tensor
	var seen [5]capi.Tensor
	if err := capi.TokenizerEncodePrompt(t.raw(), line, visionModel, directory, &raw, &seen[0], &seen[1], &seen[2], &seen[3], &seen[4]); err != nil {
		return nil, failure(err)
	}
	tokens := newTensor(raw)
	defer tokens.Close()
	numbers, err := ToSlice[int64](tokens)
	prompt := &Prompt{Tokens: numbers}
	for i := range seen {
		if seen[i].ID != 0 {
			prompt.VisionInputs = append(prompt.VisionInputs, make([]*Tensor, i-len(prompt.VisionInputs))...)
			prompt.VisionInputs = append(prompt.VisionInputs, newTensor(seen[i]))
		}
	}
	if err != nil {
		for _, input := range prompt.VisionInputs {
			input.Close()
		}
		return nil, err
	}
	return prompt, nil
}

// Decode returns the text of tokens; with keepSpecial also of special ones, such as the end of a text.
func (t *Tokenizer) Decode(tokens []int64, keepSpecial bool) (string, error) {
	defer runtime.KeepAlive(t)
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.TokenizerDecode(t.raw(), first(tokens), uint(len(tokens)), flag(keepSpecial), buf, cap, needed)
	})
}

// Close destroys the tokenizer, unless a Duplicate is left.
func (t *Tokenizer) Close() error {
	if t == nil {
		return nil
	}
	return t.close()
}

// Duplicate returns another owner of the same tokenizer.
func (t *Tokenizer) Duplicate() (*Tokenizer, error) {
	defer runtime.KeepAlive(t)
	var raw capi.Tokenizer
	return madeTokenizer(&raw, capi.TokenizerDuplicate(t.raw(), &raw))
}
