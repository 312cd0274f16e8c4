// SPDX-License-Identifier: Apache-2.0

// libringmaster.so, loaded at run time: the compiled module does not depend on where it is.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "ringmaster_group.h"

namespace ringmaster {

// The functions of ringmaster_group.h, without their prefix.
struct Library {
  decltype(&rm_group_open) open;
  decltype(&rm_group_close) close;
  decltype(&rm_group_error) error;
  decltype(&rm_group_address) address;
  decltype(&rm_group_connect) connect;
  decltype(&rm_group_transport) transport;
  decltype(&rm_group_lost) lost;
  decltype(&rm_group_abort) abort;
  decltype(&rm_group_all_reduce) all_reduce;
  decltype(&rm_group_reduce_scatter) reduce_scatter;
  decltype(&rm_group_reduce) reduce;
  decltype(&rm_group_all_gather) all_gather;
  decltype(&rm_group_broadcast) broadcast;
  decltype(&rm_group_all_to_all) all_to_all;
  decltype(&rm_group_barrier) barrier;
  decltype(&rm_group_send) send;
  decltype(&rm_group_receive) receive;
};

// Loads the library, which stays loaded. Throws std::runtime_error.
inline Library LoadLibrary(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(::dlerror());
  Library library{};
  const auto load = [&](auto& function, const char* name) {
    void* const symbol = ::dlsym(handle, name);
    if (symbol == nullptr)
      throw std::runtime_error(path + " has no " + name +
                               ": install the package and the library of one release");
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
#define RM_LOAD(function) load(library.function, "rm_group_" #function)
  RM_LOAD(open);
  RM_LOAD(close);
  RM_LOAD(error);
  RM_LOAD(address);
  RM_LOAD(connect);
  RM_LOAD(transport);
  RM_LOAD(lost);
  RM_LOAD(abort);
  RM_LOAD(all_reduce);
  RM_LOAD(reduce_scatter);
  RM_LOAD(reduce);
  RM_LOAD(all_gather);
  RM_LOAD(broadcast);
  RM_LOAD(all_to_all);
  RM_LOAD(barrier);
  RM_LOAD(send);
  RM_LOAD(receive);
#undef RM_LOAD
  return library;
}

}  // namespace ringmaster
