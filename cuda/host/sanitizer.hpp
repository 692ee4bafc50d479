// What the sanitizers must be told about fibers; nothing without a sanitizer. The files of this folder that run between
// fibers are compiled without ThreadSanitizer (it would take the runtime's own bookkeeping for races), so that the
// build says by TALLY_THREAD_SANITIZER whether the program as a whole has it.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define TALLY_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TALLY_ADDRESS_SANITIZER 1
#endif
#endif

extern "C" {
#if TALLY_ADDRESS_SANITIZER
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, std::size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom_old, std::size_t* size_old);
void __asan_unpoison_memory_region(void const volatile* address, std::size_t size);
#endif
#if TALLY_THREAD_SANITIZER
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif
}

namespace tally::cuda_host {

#if TALLY_THREAD_SANITIZER
inline constexpr bool thread_sanitizer = true;
inline void* tsan_create() { return __tsan_create_fiber(0); }
inline void tsan_destroy(void* fiber) { __tsan_destroy_fiber(fiber); }
inline void* tsan_current() { return __tsan_get_current_fiber(); }
// Without telling it that what came before happened before: only barriers say so.
inline void tsan_switch(void* fiber) { __tsan_switch_to_fiber(fiber, 1); }
inline void tsan_acquire(void* token) { __tsan_acquire(token); }
inline void tsan_release(void* token) { __tsan_release(token); }
// Memory that is taken or given back meanwhile counts as nobody's.
struct TsanIgnore {
  TsanIgnore() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~TsanIgnore() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};
#else
inline constexpr bool thread_sanitizer = false;
inline void* tsan_create() { return nullptr; }
inline void tsan_destroy(void*) {}
inline void* tsan_current() { return nullptr; }
inline void tsan_switch(void*) {}
inline void tsan_acquire(void*) {}
inline void tsan_release(void*) {}
struct TsanIgnore {
  TsanIgnore() {}  // not trivial: a guard that is never read is not unused
};
#endif

}  // namespace tally::cuda_host
