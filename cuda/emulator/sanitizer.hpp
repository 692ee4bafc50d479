// Calls that inform the sanitizers about fibers; empty without a sanitizer. The files of this folder that run between
// fibers are compiled without ThreadSanitizer (it would report the runtime's own bookkeeping as races). So the build
// defines TALLY_THREAD_SANITIZER if the program as a whole uses it.
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
// Does not order the memory accesses of the two fibers: only barriers do.
inline void tsan_switch(void* fiber) { __tsan_switch_to_fiber(fiber, 1); }
inline void tsan_acquire(void* token) { __tsan_acquire(token); }
inline void tsan_release(void* token) { __tsan_release(token); }
// Memory that is allocated or freed in this scope belongs to no thread.
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
  TsanIgnore() {}  // non-trivial, so that compilers do not warn about an unused guard
};
#endif

}  // namespace tally::cuda_host
