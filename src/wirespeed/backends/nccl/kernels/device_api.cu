// Collectives as loads and stores over NCCL's device API. Before this text, ELEMENT is defined as their type.
//
// NVRTC lacks the headers of C and CUDA that NCCL's headers include. They are empty; what NCCL's barrier and
// pointers use of them is declared here.

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long uintptr_t;
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
typedef struct CUstream_st *cudaStream_t;
typedef int CUmemLocationType;
// NVRTC rejects even declarations of host functions.
#undef __host__
#define __host__

namespace cuda {
enum memory_order {
    memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst
};
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

// All scopes are that of the system, the widest.
template <typename T, thread_scope scope = thread_scope_system> struct atomic_ref {
    T &value;
    __device__ explicit atomic_ref(T &to) : value(to) {}
    __device__ T load(memory_order order) const {
        return order == memory_order_relaxed
            ? __nv_atomic_load_n(&value, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM)
            : __nv_atomic_load_n(&value, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_SYSTEM);
    }
    __device__ void store(T next, memory_order order) const {
        if (order == memory_order_relaxed)
            __nv_atomic_store_n(&value, next, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM);
        else
            __nv_atomic_store_n(&value, next, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_SYSTEM);
    }
};

inline __device__ void atomic_thread_fence(memory_order order) {
    if (order != memory_order_relaxed) __nv_atomic_thread_fence(__NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_SYSTEM);
}
}  // namespace cuda

#include <nccl_device/utility.h>

// The general function has arrays of no elements in NCCL 2.28 and 2.29, which NVRTC rejects.
namespace nccl { namespace utility {
template <> __device__ inline char *loadConst(char *const *from) {
    return (char *)__ldg((const unsigned long long *)from);
}
template <> __device__ inline uint32_t loadConst(const uint32_t *from) { return __ldg(from); }
template <> __device__ inline int loadConst(const int *from) { return __ldg(from); }
} }  // namespace nccl::utility

#include <nccl_device/impl/comm__funcs.h>
#include <nccl_device/impl/core__funcs.h>
#include <nccl_device/impl/lsa_barrier__funcs.h>
#include <nccl_device/impl/ptr__funcs.h>
#if __has_include(<nccl_device/host.h>)  // since NCCL 2.32
#include <nccl_device/host.h>
#endif

enum { THREADS = 512, MOST_BLOCKS = 128, PACK_BYTES = 16, DEPTH = 8 };

__device__ constexpr ncclDevCommRequirements required() {
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
    ncclDevCommRequirements made = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else  // NCCL 2.28
    ncclDevCommRequirements made = {};
#endif
    made.lsaBarrierCount = MOST_BLOCKS;
    return made;
}

// For the host, which asks NCCL for the device communicator: the requirements, and the size of the communicator.
// They depend on the version of NCCL.
extern "C" {
__device__ ncclDevCommRequirements requirements = required();
__device__ uint64_t communicator_bytes = sizeof(ncclDevComm);
}

// Elements narrower than a register, and the registers in which several of them are added at once.
struct Half {
    uint16_t bits;
};
struct Halves {
    uint32_t bits;
};
struct Bytes {
    uint32_t bits;
};

__device__ Half operator+(Half a, Half b) {
    asm("add.f16 %0, %0, %1;" : "+h"(a.bits) : "h"(b.bits));
    return a;
}

__device__ Halves operator+(Halves a, Halves b) {
    asm("add.f16x2 %0, %0, %1;" : "+r"(a.bits) : "r"(b.bits));
    return a;
}

__device__ Bytes operator+(Bytes a, Bytes b) { return {__vadd4(a.bits, b.bits)}; }

template <typename T> struct InRegister { typedef T Type; };
template <> struct InRegister<Half> { typedef Halves Type; };
template <> struct InRegister<uint8_t> { typedef Bytes Type; };

// What a thread loads and stores at once in the vectorised kernels.
template <typename T> struct alignas(PACK_BYTES) Pack {
    T lanes[PACK_BYTES / sizeof(T)];
};

template <typename T> __device__ Pack<T> operator+(Pack<T> a, Pack<T> b) {
#pragma unroll
    for (int i = 0; i < PACK_BYTES / sizeof(T); i++) a.lanes[i] = a.lanes[i] + b.lanes[i];
    return a;
}

typedef Pack<InRegister<ELEMENT>::Type> Packed;

// The buffers of a collective: windows of NCCL and offsets in them, in bytes.
struct Buffers {
    ncclWindow_t source, target;
    uint64_t source_at, target_at;

    __device__ Buffers after(uint64_t bytes) const {
        return {source, target, source_at + bytes, target_at + bytes};
    }
    template <typename T> __device__ const T *read(int rank, uint64_t bytes = 0) const {
        return (const T *)ncclGetLsaPointer(source, source_at + bytes, rank);
    }
    template <typename T> __device__ T *write(int rank, uint64_t bytes = 0) const {
        return (T *)ncclGetLsaPointer(target, target_at + bytes, rank);
    }
};

// How elements divide into those before the first address that packs can have, packs, and the rest.
struct Division {
    uint64_t head, packs, tail_at;

    // Every part of the buffers starts at a multiple of `part` bytes.
    __device__ Division(const Buffers &buffers, uint64_t count, uint64_t part = 0) {
        const uint64_t width = sizeof(ELEMENT);
        const bool alike = (buffers.source_at - buffers.target_at) % PACK_BYTES == 0 && part % PACK_BYTES == 0;
        const uint64_t before = (PACK_BYTES - buffers.source_at % PACK_BYTES) % PACK_BYTES / width;
        head = alike && before < count ? before : count;
        packs = (count - head) * width / PACK_BYTES;
        tail_at = head + packs * (PACK_BYTES / width);
    }
};

// A thread's N values from `first`, `step` apart; the values from `count` on do not exist.
template <int N, bool CHECKED, typename T>
__device__ void load(T (&values)[N], const T *from, uint64_t first, uint64_t step, uint64_t count) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (!CHECKED || first + i * step < count) values[i] = from[first + i * step];
    }
}

template <int N, bool CHECKED, typename T>
__device__ void store(const T (&values)[N], T *to, uint64_t first, uint64_t step, uint64_t count) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (!CHECKED || first + i * step < count) to[first + i * step] = values[i];
    }
}

// Ranks begin with different peers, so that they do not all use the links of one of them.
__device__ int peer_of(const ncclDevComm &comm, int turn) { return (comm.lsaRank + turn) % comm.lsaSize; }

template <int N, bool CHECKED, typename T>
__device__ void reduce_some(
    const Buffers &buffers, const ncclDevComm &comm, uint64_t first, uint64_t step, uint64_t count
) {
    T sums[N] = {}, values[N] = {};
    load<N, CHECKED>(sums, buffers.read<T>(comm.lsaRank), first, step, count);
    for (int turn = 1; turn < comm.lsaSize; turn++) {
        load<N, CHECKED>(values, buffers.read<T>(peer_of(comm, turn)), first, step, count);
#pragma unroll
        for (int i = 0; i < N; i++) sums[i] = sums[i] + values[i];
    }
    for (int turn = 0; turn < comm.lsaSize; turn++) {
        store<N, CHECKED>(sums, buffers.write<T>(peer_of(comm, turn)), first, step, count);
    }
}

// The threads of all ranks share the values. One of them reads a value of all ranks and writes its sum to all.
template <int N, typename T> __device__ void reduce(const Buffers &buffers, const ncclDevComm &comm, uint64_t count) {
    const uint64_t step = (uint64_t)THREADS * gridDim.x * comm.lsaSize;
    uint64_t first = threadIdx.x + (uint64_t)THREADS * (comm.lsaRank + blockIdx.x * comm.lsaSize);
    for (; first + (N - 1) * step < count; first += N * step) {
        reduce_some<N, false, T>(buffers, comm, first, step, count);
    }
    if (first < count) reduce_some<N, true, T>(buffers, comm, first, step, count);
}

template <int N, bool CHECKED, typename T>
__device__ void scatter_some(
    const Buffers &buffers, const ncclDevComm &comm, uint64_t part, uint64_t first, uint64_t step, uint64_t count
) {
    for (int turn = 0; turn < comm.lsaSize; turn++) {
        const int peer = peer_of(comm, turn);
        T values[N];
        load<N, CHECKED>(values, buffers.read<T>(comm.lsaRank, peer * part), first, step, count);
        store<N, CHECKED>(values, buffers.write<T>(peer, comm.lsaRank * part), first, step, count);
    }
}

// The threads of a rank share the values of a part; each writes its values of all parts to the peers.
template <int N, typename T>
__device__ void scatter(const Buffers &buffers, const ncclDevComm &comm, uint64_t part, uint64_t count) {
    const uint64_t step = (uint64_t)THREADS * gridDim.x;
    uint64_t first = threadIdx.x + (uint64_t)THREADS * blockIdx.x;
    for (; first + (N - 1) * step < count; first += N * step) {
        scatter_some<N, false, T>(buffers, comm, part, first, step, count);
    }
    if (first < count) scatter_some<N, true, T>(buffers, comm, part, first, step, count);
}

// The blocks of the same number of all ranks wait for each other: before, until all buffers may be read and
// written; after, until they have been.
struct Meeting {
    ncclLsaBarrierSession<ncclCoopCta> barrier;
    __device__ explicit Meeting(const ncclDevComm &comm)
        : barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x) {
        barrier.sync(ncclCoopCta(), cuda::memory_order_acquire);
    }
    __device__ ~Meeting() { barrier.sync(ncclCoopCta(), cuda::memory_order_release); }
};

#define KERNEL(name) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name( \
        const ncclWindow_t source, const uint64_t source_at, const ncclWindow_t target, const uint64_t target_at, \
        const uint64_t count, const __grid_constant__ ncclDevComm comm \
    )

KERNEL(all_reduce_1) {
    Meeting meeting(comm);
    reduce<1, ELEMENT>({source, target, source_at, target_at}, comm, count);
}

KERNEL(all_reduce_2) {
    Meeting meeting(comm);
    const Buffers buffers = {source, target, source_at, target_at};
    const Division in(buffers, count);
    reduce<1, ELEMENT>(buffers, comm, in.head);
    reduce<DEPTH, Packed>(buffers.after(in.head * sizeof(ELEMENT)), comm, in.packs);
    reduce<1, ELEMENT>(buffers.after(in.tail_at * sizeof(ELEMENT)), comm, count - in.tail_at);
}

KERNEL(alltoall_1) {
    Meeting meeting(comm);
    scatter<1, ELEMENT>({source, target, source_at, target_at}, comm, count * sizeof(ELEMENT), count);
}

KERNEL(alltoall_2) {
    Meeting meeting(comm);
    const Buffers buffers = {source, target, source_at, target_at};
    const uint64_t part = count * sizeof(ELEMENT);
    const Division in(buffers, count, part);
    scatter<1, ELEMENT>(buffers, comm, part, in.head);
    scatter<DEPTH, Packed>(buffers.after(in.head * sizeof(ELEMENT)), comm, part, in.packs);
    scatter<1, ELEMENT>(buffers.after(in.tail_at * sizeof(ELEMENT)), comm, part, count - in.tail_at);
}
