// A ProcessGroup (core/distributed/process_group.hpp) whose ranks are threads of one process. So tests of communication
// need no MPI, and sanitizers check all of it.
#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/distributed/process_group.hpp"

namespace tally::testing {

// Messages are moved as late as MPI allows: when somebody waits, or now and then when somebody looks. Memory that is
// changed too early gives other bits, or a race for ThreadSanitizer.
class Mailbox {
 public:
  struct Message {
    std::int64_t from, to;
    int tag;
    std::span<const std::byte> source;
    std::span<std::byte> target;
    bool sends;
    bool arrived = false;
  };

  Message* post(const Message& message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(message);
    return &messages_.back();
  }

  bool arrived(std::span<Transport::Request> requests) {
    const std::lock_guard lock(mutex_);
    if (random_() % 2 == 0) move_all();
    return all_arrived(requests);
  }

  void wait(std::span<Transport::Request> requests) {
    std::unique_lock lock(mutex_);
    while (true) {
      move_all();
      if (all_arrived(requests)) return;
      if (error_) throw std::runtime_error("another rank has failed");
      moved_.wait(lock);
    }
  }

  void wake() { moved_.notify_all(); }

  // No rank waits for a failed one. The first error of all is kept.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    moved_.notify_all();
  }
  std::exception_ptr error() const { return error_; }

 private:
  // Messages between two ranks with one tag arrive in the order in which they were sent.
  void move_all() {
    for (Message& receiver : messages_) {
      if (receiver.sends || receiver.arrived) continue;
      for (Message& sender : messages_) {
        if (!sender.sends || sender.arrived || sender.from != receiver.from || sender.to != receiver.to ||
            sender.tag != receiver.tag) {
          continue;
        }
        if (sender.source.size() != receiver.target.size()) throw std::logic_error("a message of another size");
        std::memcpy(receiver.target.data(), sender.source.data(), sender.source.size());
        sender.arrived = receiver.arrived = true;
        break;
      }
    }
    moved_.notify_all();
  }

  bool all_arrived(std::span<Transport::Request> requests) {
    bool all = true;
    for (Transport::Request& request : requests) {
      if (request == nullptr) continue;
      if (static_cast<Message*>(request)->arrived) {
        messages_.remove_if([request](const Message& message) { return &message == request; });
        request = nullptr;
      } else {
        all = false;
      }
    }
    return all;
  }

  std::mutex mutex_;
  std::condition_variable moved_;
  std::list<Message> messages_;
  std::mt19937 random_{20261124};
  std::exception_ptr error_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Mailbox& mailbox, std::int64_t rank) : mailbox_(mailbox), rank_(rank) {}
  Request send(std::span<const std::byte> bytes, std::int64_t to, int tag) override {
    Request const request = mailbox_.post({rank_, to, tag, bytes, {}, true});
    mailbox_.wake();
    return request;
  }
  Request receive(std::span<std::byte> bytes, std::int64_t from, int tag) override {
    Request const request = mailbox_.post({from, rank_, tag, {}, bytes, false});
    mailbox_.wake();
    return request;
  }
  bool arrived(std::span<Request> requests) override { return mailbox_.arrived(requests); }
  void wait(std::span<Request> requests) override { mailbox_.wait(requests); }
  [[noreturn]] void abort_all(int) override { throw std::logic_error("all ranks are ended"); }

 private:
  Mailbox& mailbox_;
  std::int64_t rank_;
};

// f(ranks) for each of `size` ranks, in a thread of its own. Throws the first rank's exception.
template <class F>
void on_ranks(std::int64_t size, F&& f) {
  Mailbox mailbox;
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadTransport transport(mailbox, rank);
      try {
        f(ProcessGroup(rank, size, transport));
      } catch (...) {
        mailbox.fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (mailbox.error()) std::rethrow_exception(mailbox.error());
}

}  // namespace tally::testing
