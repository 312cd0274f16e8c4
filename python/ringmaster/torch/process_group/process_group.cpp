// SPDX-License-Identifier: Apache-2.0

// The backend "ringmaster" of torch.distributed. Each operation checks its arguments in the thread that calls
// it, and runs in a Lane.
//
// c10d::Backend gains virtual functions from release to release. Those that not all supported releases have
// are without `override` here.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dense.h"
#include "lanes.h"

namespace ringmaster {
namespace {

using at::Tensor;
using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr const char* kName = "ringmaster";

void CheckTensor(const Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided, kName,
              ": only dense tensors are supported");
  TORCH_CHECK(tensor.device().is_cpu(), kName, ": a tensor is on ", tensor.device(),
              ": this backend carries CPU tensors; use nccl for those of GPUs, as in "
              "init_process_group(\"cpu:ringmaster,cuda:nccl\")");
}

const Tensor& One(const std::vector<Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, kName, ": one tensor is needed, and there are ", tensors.size());
  CheckTensor(tensors[0]);
  return tensors[0];
}

const std::vector<Tensor>& One(const std::vector<std::vector<Tensor>>& lists) {
  TORCH_CHECK(lists.size() == 1, kName, ": one list of tensors is needed, and there are ", lists.size());
  return lists[0];
}

// Checks that there is a tensor for each rank, like `like`.
void CheckShares(const std::vector<Tensor>& shares, const Tensor& like, int world) {
  TORCH_CHECK(shares.size() == static_cast<size_t>(world), kName, ": ", shares.size(), " tensors for ", world,
              " ranks");
  for (const Tensor& share : shares) {
    CheckTensor(share);
    TORCH_CHECK(share.scalar_type() == like.scalar_type() && share.numel() == like.numel(), kName,
                ": the tensors of a collective differ in type or size");
  }
}

// Checks that `whole` is `world` times as large as `share`.
void CheckWhole(const Tensor& whole, const Tensor& share, int world) {
  CheckTensor(whole);
  CheckTensor(share);
  TORCH_CHECK(whole.scalar_type() == share.scalar_type() && whole.numel() == share.numel() * world, kName,
              ": ", whole.numel(), " elements of type ", whole.scalar_type(), " are not ", world, " times ",
              share.numel(), " of type ", share.scalar_type());
}

Reduction ReductionOf(const Tensor& tensor, const c10d::ReduceOp& wanted) {
  const c10d::ReduceOp::RedOpType op = wanted.op_;
  const at::ScalarType type = tensor.scalar_type();
  Reduction reduction;
  reduction.element_bytes = tensor.element_size();
  reduction.combiner = FindCombiner(type, op);
  TORCH_CHECK(reduction.combiner != nullptr, kName, ": no reduction ", static_cast<int>(op),
              " (torch.distributed.ReduceOp) of elements of type ", type);
  if (type == at::kFloat || type == at::kInt) {
    using Op = c10d::ReduceOp::RedOpType;
    if (op == Op::SUM || op == Op::AVG || op == Op::MAX) {
      reduction.native_element = type == at::kFloat ? RM_FLOAT32 : RM_INT32;
      reduction.native_reduction = op == Op::MAX ? RM_MAX : RM_SUM;
      reduction.average = op == Op::AVG;
    }
  }
  return reduction;
}

std::vector<Dense> DenseOf(const std::vector<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

template <class Pointer>
std::vector<Pointer> Pointers(const std::vector<Dense>& tensors) {
  std::vector<Pointer> pointers;
  for (const Dense& tensor : tensors) pointers.push_back(tensor.data());
  return pointers;
}

void WriteAll(std::vector<Dense>& tensors) {
  for (Dense& tensor : tensors) tensor.Write();
}

std::vector<const char*> SharesOf(const Dense& whole, size_t bytes, int world) {
  std::vector<const char*> shares;
  for (int r = 0; r < world; ++r) shares.push_back(whole.data() + static_cast<size_t>(r) * bytes);
  return shares;
}

// The parts of a tensor that is split in its first dimension; no sizes: in equal parts.
std::vector<Link::Part> PartsOf(const Dense& whole, const std::vector<int64_t>& sizes, size_t row_bytes,
                                int world) {
  std::vector<Link::Part> parts;
  char* data = whole.data();
  for (int r = 0; r < world; ++r) {
    const size_t bytes = sizes.empty() ? whole.bytes() / static_cast<size_t>(world)
                                       : static_cast<size_t>(sizes[static_cast<size_t>(r)]) * row_bytes;
    parts.push_back({data, bytes});
    data += bytes;
  }
  return parts;
}

std::vector<Link::Part> PartsOf(const std::vector<Dense>& tensors) {
  std::vector<Link::Part> parts;
  for (const Dense& tensor : tensors) parts.push_back({tensor.data(), tensor.bytes()});
  return parts;
}

class ProcessGroup;
std::mutex groups_mutex;
std::set<ProcessGroup*> groups;  // that are open

class ProcessGroup final : public c10d::Backend {
 public:
  ProcessGroup(const Settings& settings, const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
               std::chrono::milliseconds timeout)
      : Backend(rank, world),
        lanes_(std::make_unique<Lanes>(settings, store, rank, world, timeout)),
        options_(c10::make_intrusive<Options>(kName, timeout)) {
    const std::lock_guard lock(groups_mutex);
    groups.insert(this);
  }

  ~ProcessGroup() override { Close(); }

  // Ends the group: operations that are pending fail, here and elsewhere.
  void Close() {
    {
      const std::lock_guard lock(groups_mutex);
      groups.erase(this);
    }
    if (lanes_ == nullptr) return;
    if (::getpid() != process_) {
      (void)lanes_.release();  // a fork has no copy of the threads
      return;
    }
    if (!lanes_->idle()) abort();
    Destroy();
  }

  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<Options> getBackendOptions() { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) {
    options_->timeout = timeout;
    Open().set_timeout(timeout);
  }
  uint64_t getSequenceNumberForGroup() override { return lanes_ == nullptr ? 0 : lanes_->submitted(); }
  void setSequenceNumberForGroup() override {}

  // Fails all operations, here and on ranks that wait for this one.
  void abort() {
    if (lanes_ != nullptr) lanes_->Fail("rank " + std::to_string(rank_) + " aborted");
  }
  // Waits for pending operations, and ends the group in order.
  void shutdown() {
    {
      const std::lock_guard lock(groups_mutex);
      groups.erase(this);
    }
    if (::getpid() == process_) Destroy();
  }

  WorkPtr allreduce(std::vector<Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return AllReduce(OpType::ALLREDUCE, {One(tensors)}, options);
  }
  WorkPtr allreduce_coalesced(std::vector<Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    for (const Tensor& tensor : tensors) CheckTensor(tensor);
    return AllReduce(OpType::ALLREDUCE_COALESCED, tensors, options);
  }

  WorkPtr reduce(std::vector<Tensor>& tensors, const c10d::ReduceOptions& options) override {
    const Tensor tensor = One(tensors);
    const Reduction by = ReductionOf(tensor, options.reduceOp);
    const int root = Root(options.rootRank);
    return Open().Collective({OpType::REDUCE, "ringmaster:reduce", options.timeout, tensors, tensors},
                             [tensor, by, root](Link& link) {
                               Dense dense(tensor);
                               link.Reduce(dense.data(), dense.count(), by, root);
                               if (link.rank() == root) dense.Write();
                             });
  }

  WorkPtr broadcast(std::vector<Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    const Tensor tensor = One(tensors);
    const int root = Root(options.rootRank);
    return Open().Collective({OpType::BROADCAST, "ringmaster:broadcast", options.timeout, tensors, tensors},
                             [tensor, root](Link& link) {
                               Dense dense(tensor);
                               link.Broadcast(dense.data(), dense.bytes(), root);
                               if (link.rank() != root) dense.Write();
                             });
  }

  WorkPtr allgather(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    const Tensor input = One(inputs);
    const std::vector<Tensor> output = One(outputs);
    CheckShares(output, input, size_);
    return Open().Collective({OpType::ALLGATHER, "ringmaster:all_gather", options.timeout, output, inputs},
                             [input, output](Link& link) {
                               const Dense in(input);
                               std::vector<Dense> out = DenseOf(output);
                               link.AllGather(in.data(), Pointers<char*>(out), in.bytes());
                               WriteAll(out);
                             });
  }
  WorkPtr allgather_coalesced(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                              const c10d::AllgatherOptions& options) override {
    TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), kName,
                ": one list of outputs for each rank is needed");
    // outputs[rank][tensor]
    std::vector<std::vector<Tensor>> by_tensor(inputs.size());
    std::vector<Tensor> all;
    for (const std::vector<Tensor>& list : outputs) {
      TORCH_CHECK(list.size() == inputs.size(), kName, ": the lists of outputs and inputs differ in length");
      for (size_t i = 0; i < inputs.size(); ++i) by_tensor[i].push_back(list[i]);
      all.insert(all.end(), list.begin(), list.end());
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      CheckTensor(inputs[i]);
      CheckShares(by_tensor[i], inputs[i], size_);
    }
    return Open().Collective(
        {OpType::ALLGATHER_COALESCED, "ringmaster:all_gather_coalesced", options.timeout, all, inputs},
        [inputs, by_tensor](Link& link) {
          for (size_t i = 0; i < inputs.size(); ++i) {
            const Dense in(inputs[i]);
            std::vector<Dense> out = DenseOf(by_tensor[i]);
            link.AllGather(in.data(), Pointers<char*>(out), in.bytes());
            WriteAll(out);
          }
        });
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    return AllGatherSingle(OpType::_ALLGATHER_BASE, {output}, {input}, options);
  }
  WorkPtr allgather_into_tensor_coalesced(std::vector<Tensor>& outputs, std::vector<Tensor>& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return AllGatherSingle(OpType::ALLGATHER_INTO_TENSOR_COALESCED, outputs, inputs, options);
  }

  WorkPtr gather(std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor>& inputs,
                 const c10d::GatherOptions& options) override {
    const Tensor input = One(inputs);
    const int root = Root(options.rootRank);
    std::vector<Tensor> output;
    if (rank_ == root) {
      output = One(outputs);
      CheckShares(output, input, size_);
    }
    return Open().Collective({OpType::GATHER, "ringmaster:gather", options.timeout, output, inputs},
                             [input, output, root](Link& link) {
                               const Dense in(input);
                               std::vector<Dense> out = DenseOf(output);
                               link.Gather(in.data(), Pointers<char*>(out), in.bytes(), root);
                               WriteAll(out);
                             });
  }

  WorkPtr scatter(std::vector<Tensor>& outputs, std::vector<std::vector<Tensor>>& inputs,
                  const c10d::ScatterOptions& options) override {
    const Tensor output = One(outputs);
    const int root = Root(options.rootRank);
    std::vector<Tensor> input;
    if (rank_ == root) {
      input = One(inputs);
      CheckShares(input, output, size_);
    }
    return Open().Collective({OpType::SCATTER, "ringmaster:scatter", options.timeout, outputs, input},
                             [input, output, root](Link& link) {
                               const std::vector<Dense> in = DenseOf(input);
                               Dense out(output);
                               link.Scatter(Pointers<const char*>(in), out.data(), out.bytes(), root);
                               out.Write();
                             });
  }

  WorkPtr reduce_scatter(std::vector<Tensor>& outputs, std::vector<std::vector<Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    const Tensor output = One(outputs);
    const std::vector<Tensor> input = One(inputs);
    CheckShares(input, output, size_);
    const Reduction by = ReductionOf(output, options.reduceOp);
    return Open().Collective(
        {OpType::REDUCE_SCATTER, "ringmaster:reduce_scatter", options.timeout, outputs, input},
        [input, output, by](Link& link) {
          const std::vector<Dense> in = DenseOf(input);
          Dense out(output);
          link.ReduceScatter(Pointers<const char*>(in), out.data(), out.count(), by);
          out.Write();
        });
  }
  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return ReduceScatterSingle(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(std::vector<Tensor>& outputs, std::vector<Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return ReduceScatterSingle(OpType::REDUCE_SCATTER_TENSOR_COALESCED, outputs, inputs, options);
  }

  WorkPtr alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override {
    const size_t row_out = CheckSplit(output, output_sizes);
    const size_t row_in = CheckSplit(input, input_sizes);
    TORCH_CHECK(output.scalar_type() == input.scalar_type(), kName, ": all-to-all of two types");
    return Open().Collective(
        {OpType::ALLTOALL_BASE, "ringmaster:all_to_all", options.timeout, {output}, {input}},
        [output, input, output_sizes, input_sizes, row_out, row_in](Link& link) {
          const Dense in(input);
          Dense out(output);
          link.AllToAll(PartsOf(in, input_sizes, row_in, link.world()),
                        PartsOf(out, output_sizes, row_out, link.world()));
          out.Write();
        });
  }
  WorkPtr alltoall(std::vector<Tensor>& outputs, std::vector<Tensor>& inputs,
                   const c10d::AllToAllOptions& options) override {
    const auto world = static_cast<size_t>(size_);
    TORCH_CHECK(outputs.size() == world && inputs.size() == world, kName,
                ": all-to-all needs a tensor for each rank");
    for (size_t r = 0; r < world; ++r) {
      CheckTensor(outputs[r]);
      CheckTensor(inputs[r]);
    }
    return Open().Collective({OpType::ALLTOALL, "ringmaster:all_to_all", options.timeout, outputs, inputs},
                             [outputs, inputs](Link& link) {
                               const std::vector<Dense> in = DenseOf(inputs);
                               std::vector<Dense> out = DenseOf(outputs);
                               link.AllToAll(PartsOf(in), PartsOf(out));
                               WriteAll(out);
                             });
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return Open().Collective({OpType::BARRIER, "ringmaster:barrier", options.timeout, {}, {}},
                             [](Link& link) { link.Barrier(); });
  }

  WorkPtr send(std::vector<Tensor>& tensors, int peer, int tag) override {
    const Tensor tensor = One(tensors);
    CheckPeer(peer);
    return Open().Send({OpType::SEND, "ringmaster:send", c10d::kUnsetTimeout, tensors, tensors}, tensor, peer,
                       tag);
  }
  WorkPtr recv(std::vector<Tensor>& tensors, int peer, int tag) override {
    const Tensor tensor = One(tensors);
    CheckPeer(peer);
    return Open().Receive({OpType::RECV, "ringmaster:recv", c10d::kUnsetTimeout, tensors, {}, peer}, tensor,
                          peer, tag);
  }
  WorkPtr recvAnysource(std::vector<Tensor>&, int) override {
    TORCH_CHECK(false, kName, ": a receive needs the rank of its sender");
  }

 private:
  Lanes& Open() {
    TORCH_CHECK(lanes_ != nullptr, kName, ": the process group has been shut down");
    TORCH_CHECK(::getpid() == process_, kName,
                ": a process that was forked cannot use the group of its parent");
    return *lanes_;
  }

  // Joins threads, which may need Python's lock to run callbacks.
  void Destroy() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      const pybind11::gil_scoped_release released;
      lanes_.reset();
    } else {
      lanes_.reset();
    }
  }

  int Root(int64_t root) const {
    TORCH_CHECK(root >= 0 && root < size_, kName, ": no rank ", root, " in a group of ", size_);
    return static_cast<int>(root);
  }
  void CheckPeer(int peer) const {
    TORCH_CHECK(Root(peer) != rank_, kName, ": rank ", peer, " cannot send to itself");
  }

  // Returns the bytes of one row of a tensor that is split in its first dimension.
  size_t CheckSplit(const Tensor& tensor, const std::vector<int64_t>& sizes) const {
    CheckTensor(tensor);
    const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    if (sizes.empty()) {
      TORCH_CHECK(rows % size_ == 0, kName, ": ", rows, " rows are not ", size_, " equal parts");
    } else {
      int64_t sum = 0;
      for (const int64_t size : sizes) {
        TORCH_CHECK(size >= 0, kName, ": a part of ", size, " rows");
        sum += size;
      }
      TORCH_CHECK(sizes.size() == static_cast<size_t>(size_) && sum == rows, kName, ": ", sizes.size(),
                  " parts with ", sum, " rows for ", size_, " ranks and ", rows, " rows");
    }
    return rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
  }

  WorkPtr AllReduce(OpType type, const std::vector<Tensor>& tensors, const c10d::AllreduceOptions& options) {
    std::vector<Reduction> by;
    for (const Tensor& tensor : tensors) by.push_back(ReductionOf(tensor, options.reduceOp));
    return Open().Collective({type, "ringmaster:all_reduce", options.timeout, tensors, tensors},
                             [tensors, by](Link& link) {
                               for (size_t i = 0; i < tensors.size(); ++i) {
                                 Dense dense(tensors[i]);
                                 link.AllReduce(dense.data(), dense.count(), by[i]);
                                 dense.Write();
                               }
                             });
  }

  WorkPtr AllGatherSingle(OpType type, const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                          const c10d::AllgatherOptions& options) {
    TORCH_CHECK(outputs.size() == inputs.size(), kName, ": the lists of outputs and inputs differ in length");
    for (size_t i = 0; i < inputs.size(); ++i) CheckWhole(outputs[i], inputs[i], size_);
    return Open().Collective({type, "ringmaster:all_gather", options.timeout, outputs, inputs},
                             [outputs, inputs](Link& link) {
                               for (size_t i = 0; i < inputs.size(); ++i) {
                                 const Dense in(inputs[i]);
                                 Dense out(outputs[i]);
                                 link.AllGather(in.data(), out.data(), in.bytes());
                                 out.Write();
                               }
                             });
  }

  WorkPtr ReduceScatterSingle(OpType type, const std::vector<Tensor>& outputs,
                              const std::vector<Tensor>& inputs, const c10d::ReduceScatterOptions& options) {
    TORCH_CHECK(outputs.size() == inputs.size(), kName, ": the lists of outputs and inputs differ in length");
    std::vector<Reduction> by;
    for (size_t i = 0; i < inputs.size(); ++i) {
      CheckWhole(inputs[i], outputs[i], size_);
      by.push_back(ReductionOf(inputs[i], options.reduceOp));
    }
    return Open().Collective({type, "ringmaster:reduce_scatter", options.timeout, outputs, inputs},
                             [outputs, inputs, by](Link& link) {
                               for (size_t i = 0; i < inputs.size(); ++i) {
                                 const Dense in(inputs[i]);
                                 Dense out(outputs[i]);
                                 link.ReduceScatter(SharesOf(in, out.bytes(), link.world()), out.data(),
                                                    out.count(), by[i]);
                                 out.Write();
                               }
                             });
  }

  const pid_t process_ = ::getpid();
  std::unique_ptr<Lanes> lanes_;  // null after shutdown
  const c10::intrusive_ptr<Options> options_;
};

c10::intrusive_ptr<c10d::Backend> Create(const std::string& library, const std::string& transport,
                                         const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                         std::chrono::milliseconds timeout) {
  return c10::make_intrusive<ProcessGroup>(Settings{library, transport}, store, rank, world, timeout);
}

void CloseAll() {
  while (true) {
    ProcessGroup* group = nullptr;
    {
      const std::lock_guard lock(groups_mutex);
      if (groups.empty()) return;
      group = *groups.begin();
    }
    group->Close();
  }
}

}  // namespace
}  // namespace ringmaster

PYBIND11_MODULE(RM_MODULE, m) {
  using release = pybind11::call_guard<pybind11::gil_scoped_release>;
  m.def("create", &ringmaster::Create, release());
  m.def("close_all", &ringmaster::CloseAll, release());
}
