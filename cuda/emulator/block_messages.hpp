// Names of threads and places for a block's error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "cuda/emulator/language.hpp"
#include "cuda/emulator/sanitizer.hpp"

namespace tally::cuda_host {

// Instrumented code and code without optimisation take several times the stack.
#if TALLY_ADDRESS_SANITIZER || TALLY_THREAD_SANITIZER || !defined(__OPTIMIZE__)
inline constexpr std::size_t stack_bytes = std::size_t{512} << 10;
#else
inline constexpr std::size_t stack_bytes = std::size_t{128} << 10;
#endif

// Nearly always the same literal; some linkers do not merge literals, so the text is compared too.
inline bool same(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }
inline bool same(const SourceLine& a, const SourceLine& b) { return a.line == b.line && same(a.file, b.file); }
inline uint3 index_of(std::uint64_t number, const dim3& size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

std::string text_of(const uint3& index);
std::string text_of(const SourceLine& line);
std::string hexadecimal(std::uint32_t mask);

}  // namespace tally::cuda_host
