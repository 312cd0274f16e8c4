// SPDX-License-Identifier: Apache-2.0

// A write-only stream buffer of the HTTP library that passes on what is written. The library reads the next
// bytes from the connection when the returned task is done. The library calls it on its threads, one call at
// a time.
#pragma once

#include <cpprest/streams.h>

#include <functional>
#include <ios>
#include <utility>

namespace ringmaster::kube {

class ByteSink final : public concurrency::streams::details::streambuf_state_manager<uint8_t> {
 public:
  using Take = std::function<pplx::task<size_t>(const uint8_t*, size_t)>;

  explicit ByteSink(Take take) : streambuf_state_manager(std::ios_base::out), take_(std::move(take)) {}

  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(size_t, std::ios_base::openmode) override {}
  size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return pos_type(off_type(-1)); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return pos_type(off_type(-1)); }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return pos_type(off_type(-1));
  }
  bool acquire(uint8_t*&, size_t&) override { return false; }
  void release(uint8_t*, size_t) override {}

 protected:
  pplx::task<size_t> _putn(const uint8_t* bytes, size_t count) override { return take_(bytes, count); }
  pplx::task<int_type> _putc(uint8_t byte) override {
    return take_(&byte, 1).then([byte](size_t) { return static_cast<int_type>(byte); });
  }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }
  uint8_t* _alloc(size_t) override { return nullptr; }
  void _commit(size_t) override {}
  // Reading is not supported.
  pplx::task<int_type> _bumpc() override { return End(); }
  int_type _sbumpc() override { return traits::eof(); }
  pplx::task<int_type> _getc() override { return End(); }
  int_type _sgetc() override { return traits::eof(); }
  pplx::task<int_type> _nextc() override { return End(); }
  pplx::task<int_type> _ungetc() override { return End(); }
  pplx::task<size_t> _getn(uint8_t*, size_t) override { return pplx::task_from_result<size_t>(0); }
  size_t _scopy(uint8_t*, size_t) override { return 0; }

 private:
  static pplx::task<int_type> End() { return pplx::task_from_result<int_type>(traits::eof()); }
  const Take take_;
};

}  // namespace ringmaster::kube
