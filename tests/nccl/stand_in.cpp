// SPDX-License-Identifier: BSL-1.0
// A strict stand-in for libnccl and for what our code calls of CUDA's runtime: programs that link this use NCCL and CUDA by their own
// headers, and get host memory and ranks that are threads, without a GPU. Strict where NCCL is: nothing moves before a group ends, a
// send ends when its receiver has it, streams run on their own, device memory starts as NaN and nothing else is taken for it,
// non-blocking communicators are in progress for a while. Stricter in one thing: messages of another size than expected are reported,
// to both ranks. Only functions of NCCL 2.18. Never link the real libraries too.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <topsum/concepts.hpp>
#include <topsum/core/bfloat16.hpp>
#include <topsum/core/half.hpp>
#include <utility>
#include <vector>

// ---------------------------------------------------------------------------------------------------------------------
// Streams are worker threads.

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  std::uint64_t pushed = 0;
  std::uint64_t done = 0;
  bool ends = false;
  std::thread worker{[this] { run(); }};

  ~CUstream_st() {
    {
      std::lock_guard const lock{mutex};
      ends = true;
    }
    changed.notify_all();
    worker.join();
  }
  std::uint64_t push(std::function<void()> job) {
    std::uint64_t mine = 0;
    {
      std::lock_guard const lock{mutex};
      jobs.push_back(std::move(job));
      mine = ++pushed;
    }
    changed.notify_all();
    return mine;
  }
  bool has_done(std::uint64_t which) {
    std::lock_guard const lock{mutex};
    return done >= which;
  }
  void wait() {
    std::unique_lock lock{mutex};
    std::uint64_t const which = pushed;
    changed.wait(lock, [&] { return done >= which; });
  }

 private:
  void run() {
    std::unique_lock lock{mutex};
    for (;;) {
      changed.wait(lock, [&] { return ends || !jobs.empty(); });
      if (jobs.empty()) return;
      auto const job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      lock.lock();
      ++done;
      changed.notify_all();
    }
  }
};

struct CUevent_st {
  CUstream_st* stream = nullptr;
  std::uint64_t after = 0;
};

namespace {

// What has been allocated for "the device": NCCL and copies refuse anything else.
class device_memory {
 public:
  void* allocate(std::size_t bytes) {
    auto memory = std::make_unique<std::byte[]>(std::max<std::size_t>(1, bytes));
    std::memset(memory.get(), 0xff, bytes);  // NaN, and no sensible count
    std::lock_guard const lock{mutex_};
    std::byte* const at = memory.get();
    blocks_[at] = {bytes, std::move(memory)};
    return at;
  }
  bool free(void* at) {
    std::lock_guard const lock{mutex_};
    return blocks_.erase(static_cast<std::byte*>(at)) == 1;
  }
  bool has(void const* at, std::size_t bytes) {
    std::lock_guard const lock{mutex_};
    auto const* const first = static_cast<std::byte const*>(at);
    auto next = blocks_.upper_bound(const_cast<std::byte*>(first));
    if (next == blocks_.begin()) return false;
    auto const& [begin, block] = *--next;
    return first + bytes <= begin + block.first;
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, std::pair<std::size_t, std::unique_ptr<std::byte[]>>> blocks_;
};

device_memory& device() {
  static device_memory memory;
  return memory;
}

cudaError_t copy_later(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, CUstream_st& stream) {
  bool const to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool const from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (device().has(to, bytes) != to_device || device().has(from, bytes) != from_device) return cudaErrorInvalidValue;
  stream.push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

CUstream_st& stream_of(cudaStream_t stream) {
  thread_local CUstream_st mine;
  return stream == cudaStreamPerThread ? mine : *stream;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* which) {
  *which = 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
char const* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorInvalidValue ? "invalid argument" : "error";
}
cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  *at = device().allocate(bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocManaged(void** at, std::size_t bytes, unsigned) { return cudaMalloc(at, bytes); }
cudaError_t cudaFree(void* at) { return at == nullptr || device().free(at) ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaMallocHost(void** at, std::size_t bytes) {
  *at = new std::byte[bytes];
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* at) {
  delete[] static_cast<std::byte*>(at);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream_of(stream).wait();
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  stream_of(stream).push([=] { function(data); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_later(to, from, bytes, kind, stream_of(stream));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = &stream_of(stream);
  event->after = event->stream->push([] {});
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->stream == nullptr || event->stream->has_done(event->after) ? cudaSuccess : cudaErrorNotReady;
}

}  // extern "C"

// ---------------------------------------------------------------------------------------------------------------------
// Communicators are ranks of a world, in which memory addresses meet.

namespace {

enum class kind : unsigned char { send, receive, all_gather, all_reduce, broadcast };

struct operation {
  kind what;
  void const* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t how;
  int peer;  // or root
};

struct message {
  operation const* op;
  bool done = false;
};

struct collective {
  std::vector<operation const*> ops;  // by rank
  std::size_t there = 0;
  bool done = false;
  ncclResult_t end = ncclSuccess;
};

struct world {
  explicit world(int ranks) : size{static_cast<std::size_t>(ranks)}, aborted(size), faults(size, ncclSuccess) {}

  std::size_t const size;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t joined = 0;
  std::vector<bool> aborted;
  std::vector<ncclResult_t> faults;  // what asynchronous errors there are, by rank
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<message>>> sends;  // on their way, by sender and receiver
  std::map<std::uint64_t, std::shared_ptr<collective>> collectives;
};

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclFloat32:
    case ncclUint32: return 4;
    default: return 8;
  }
}

template <class V>
void reduce(std::vector<operation const*> const& ops) {
  std::size_t const n = ops[0]->count;
  std::vector<V> sum(n);
  for (std::size_t r = 0; r < ops.size(); ++r) {
    auto const* const from = static_cast<V const*>(ops[r]->from);
    for (std::size_t i = 0; i < n; ++i) {
      if (r == 0) {
        sum[i] = from[i];
      } else if constexpr (topsum::value_type<V>) {
        auto const a = topsum::to_wide(sum[i]);
        auto const b = topsum::to_wide(from[i]);
        sum[i] = topsum::from_wide<V>(ops[0]->how == ncclSum ? a + b : std::max(a, b));
      } else {
        sum[i] = ops[0]->how == ncclSum ? sum[i] + from[i] : std::max(sum[i], from[i]);
      }
    }
  }
  for (auto const* op : ops) std::memcpy(op->to, sum.data(), n * sizeof(V));
}

ncclResult_t perform(std::vector<operation const*> const& ops) {
  operation const& first = *ops[0];
  for (auto const* op : ops) {
    if (op->what != first.what || op->count != first.count || op->type != first.type || op->peer != first.peer ||
        op->how != first.how)
      return ncclInvalidUsage;
  }
  std::size_t const bytes = first.count * bytes_of(first.type);
  if (first.what == kind::all_gather) {
    std::vector<std::byte> all(bytes * ops.size());
    for (std::size_t r = 0; r < ops.size(); ++r) std::memcpy(all.data() + r * bytes, ops[r]->from, bytes);
    for (auto const* op : ops) std::memcpy(op->to, all.data(), all.size());
  } else if (first.what == kind::broadcast) {
    std::vector<std::byte> root(bytes);
    std::memcpy(root.data(), ops[static_cast<std::size_t>(first.peer)]->from, bytes);
    for (auto const* op : ops) std::memcpy(op->to, root.data(), bytes);
  } else {
    switch (first.type) {
      case ncclFloat32: reduce<float>(ops); break;
      case ncclFloat64: reduce<double>(ops); break;
      case ncclUint32: reduce<std::uint32_t>(ops); break;
      case ncclUint64: reduce<std::uint64_t>(ops); break;
      case ncclFloat16: reduce<topsum::half>(ops); break;
      case ncclBfloat16: reduce<topsum::bfloat16>(ops); break;
      default: return ncclInvalidArgument;
    }
  }
  return ncclSuccess;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<world> in;
  int rank;
  bool blocking;
  int lag = 0;                    // questions that a non-blocking communicator answers by "in progress"
  std::uint64_t collectives = 0;  // touched by the stream's thread alone

  [[nodiscard]] bool is_over() const { return in->aborted[static_cast<std::size_t>(rank)]; }
  void fault(int who, ncclResult_t what) const { in->faults[static_cast<std::size_t>(who)] = what; }
  // In progress: such a communicator answers ncclCommGetAsyncError alone.
  [[nodiscard]] bool is_busy() const {
    std::lock_guard const lock{in->mutex};
    return in->joined != in->size || lag > 0;
  }
  ncclResult_t answer() {
    if (blocking) return ncclSuccess;
    lag = 2;
    return ncclInProgress;
  }
};

namespace {

// What was said between the outermost group's calls, by this thread.
struct group {
  int depth = 0;
  std::vector<std::pair<std::pair<ncclComm_t, cudaStream_t>, operation>> said;
};
thread_local group current;

// All of a group on its stream. A send ends when its receiver has it, as NCCL may do it: nothing is buffered.
void run_group(std::shared_ptr<world> const& in, ncclComm& comm, std::vector<operation> const& ops) {
  std::unique_lock lock{in->mutex};
  auto const over = [&] { return comm.is_over(); };
  std::vector<std::shared_ptr<message>> sent;
  for (operation const& op : ops) {
    if (op.what != kind::send) continue;
    sent.push_back(std::make_shared<message>(message{&op}));
    in->sends[{comm.rank, op.peer}].push_back(sent.back());
  }
  in->changed.notify_all();
  for (operation const& op : ops) {
    if (op.what == kind::send) continue;
    if (op.what == kind::receive) {
      auto& from = in->sends[{op.peer, comm.rank}];
      in->changed.wait(lock, [&] { return over() || !from.empty(); });
      if (over()) break;
      auto const met = from.front();
      from.pop_front();
      if (met->op->count != op.count) {
        comm.fault(comm.rank, ncclInvalidUsage);
        comm.fault(op.peer, ncclInvalidUsage);
      } else {
        std::memcpy(op.to, met->op->from, op.count);
      }
      met->done = true;
      in->changed.notify_all();
    } else {
      auto& one = in->collectives[comm.collectives];
      if (!one) one = std::make_shared<collective>(collective{.ops = std::vector<operation const*>(in->size)});
      auto const mine = one;
      mine->ops[static_cast<std::size_t>(comm.rank)] = &op;
      if (++mine->there == in->size) {
        mine->end = perform(mine->ops);
        mine->done = true;
        in->collectives.erase(comm.collectives);
        in->changed.notify_all();
      }
      ++comm.collectives;
      in->changed.wait(lock, [&] { return over() || mine->done; });
      if (over()) break;
      if (mine->end != ncclSuccess) comm.fault(comm.rank, mine->end);
    }
  }
  in->changed.wait(
      lock, [&] { return over() || std::all_of(sent.begin(), sent.end(), [](auto const& one) { return one->done; }); });
  if (!over()) return;
  for (auto& [way, messages] : in->sends) {  // what nobody has taken must not be read any more
    if (way.first == comm.rank) messages.clear();
  }
}

ncclResult_t say(ncclComm_t comm, cudaStream_t stream, operation const& op) {
  std::size_t const bytes = op.count * bytes_of(op.type);
  if (comm == nullptr || op.peer < 0 || static_cast<std::size_t>(op.peer) >= comm->in->size) return ncclInvalidArgument;
  if (op.from != nullptr && !device().has(op.from, bytes)) return ncclInvalidArgument;
  if (op.to != nullptr && !device().has(op.to, op.what == kind::all_gather ? bytes * comm->in->size : bytes))
    return ncclInvalidArgument;
  bool const alone = current.depth == 0;
  if (alone) ++current.depth;
  current.said.push_back({{comm, stream}, op});
  return alone ? ncclGroupEnd() : comm->answer();
}

}  // namespace

extern "C" {

char const* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage: ranks disagree on a message";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "error";
  }
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::mutex mutex;
  static std::uint64_t last = 0;
  std::lock_guard const lock{mutex};
  ++last;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &last, sizeof last);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  static std::mutex mutex;
  static std::map<std::uint64_t, std::weak_ptr<world>> worlds;
  std::uint64_t key = 0;
  std::memcpy(&key, &id, sizeof key);
  if (rank < 0 || rank >= ranks || key == 0) return ncclInvalidArgument;
  std::shared_ptr<world> in;
  {
    std::lock_guard const lock{mutex};
    in = worlds[key].lock();
    if (!in) worlds[key] = in = std::make_shared<world>(ranks);
  }
  bool const blocking = config == nullptr || config->blocking != 0;
  *comm = new ncclComm{in, rank, blocking};
  std::unique_lock lock{in->mutex};
  ++in->joined;
  in->changed.notify_all();
  if (blocking) in->changed.wait(lock, [&] { return in->joined == in->size; });
  return (*comm)->answer();
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<ncclComm>> gone;  // what is on streams may still look at them
  std::lock_guard const lock{mutex};
  gone.emplace_back(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (current.depth != 0) std::abort();  // the open group still knows it
  {
    std::lock_guard const lock{comm->in->mutex};
    comm->in->aborted[static_cast<std::size_t>(comm->rank)] = true;
  }
  comm->in->changed.notify_all();
  return ncclCommDestroy(comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  std::lock_guard const lock{comm->in->mutex};
  *state = comm->in->faults[static_cast<std::size_t>(comm->rank)];
  if (*state == ncclSuccess && (comm->in->joined != comm->in->size || (comm->lag > 0 && comm->lag-- > 0)))
    *state = ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  if (comm->is_busy()) return ncclInvalidArgument;
  *count = static_cast<int>(comm->in->size);
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t, int* which) {
  *which = 0;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  if (comm->is_busy()) return ncclInvalidArgument;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++current.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (current.depth == 0) return ncclInvalidUsage;
  if (--current.depth != 0) return ncclSuccess;
  auto const said = std::exchange(current.said, {});
  ncclResult_t answer = ncclSuccess;
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<operation>> groups;
  for (auto const& [where, op] : said) groups[where].push_back(op);
  for (auto& [where, ops] : groups) {
    auto const [comm, stream] = where;
    stream_of(stream).push([in = comm->in, c = comm, ops = std::move(ops)] { run_group(in, *c, ops); });
    answer = comm->answer();
  }
  return answer;
}
ncclResult_t ncclSend(void const* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return say(comm, stream, {kind::send, from, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return say(comm, stream, {kind::receive, nullptr, to, count, type, ncclSum, peer});
}
ncclResult_t ncclAllGather(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return say(comm, stream, {kind::all_gather, from, to, count, type, ncclSum, 0});
}
ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t how,
                           ncclComm_t comm, cudaStream_t stream) {
  return say(comm, stream, {kind::all_reduce, from, to, count, type, how, 0});
}
ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return say(comm, stream, {kind::broadcast, from, to, count, type, ncclSum, root});
}

}  // extern "C"
