// The steps around the model of tokenizer.json: "normalizer", "pre_tokenizer" and "decoder".
#pragma once

#include "core/io/json.hpp"
#include "tasks/text/tokenizer.hpp"
#include "tasks/text/tokenizer_node.hpp"

namespace tally {

// Reads the three members into the parts, for a model with byte fallback or a byte-level one. Throws Error naming the
// unsupported member and the supported ones.
void read_tokenizer_steps(const TokenizerNode& file, bool byte_fallback, TokenizerParts& parts);
// With byte fallback, if the file does not cut texts: cuts them where no merge can cross. Needs the tokens.
void set_fallback_pattern(TokenizerParts& parts);

JsonValue normalizer_json(const TokenizerParts& parts);
JsonValue pre_tokenizer_json(const TokenizerParts& parts);
JsonValue decoder_json(const TokenizerParts& parts);

}  // namespace tally
