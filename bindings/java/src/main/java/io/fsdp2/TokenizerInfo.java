package io.fsdp2;

import io.fsdp2.internal.fsdp2_tokenizer_info;

/**
 * What a tokenizer is.
 *
 * @param hasChatTemplate whether the files beside it have one, which records of messages take
 * @param vocabSize one more than its largest token
 * @param endToken the token that ends a text; -1: no file beside it names one
 */
public record TokenizerInfo(boolean hasChatTemplate, long vocabSize, long endToken) {
  static TokenizerInfo of(fsdp2_tokenizer_info raw) {
    return new TokenizerInfo(
        raw.getHas_chat_template() != 0, raw.getVocab_size(), raw.getEnd_token());
  }
}
