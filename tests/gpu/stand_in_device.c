/* A device without a GPU: stands in for those calls of the CUDA runtime and driver with which
 * PyTorch manages a device, its memory and its streams, so that autograd's threads, cuDNN's and
 * cuBLAS's conditions and `is_cuda` are as on a GPU. It computes nothing: every launch and every
 * copy fails by name. tests/gpu/rehearse.py compiles and preloads it. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

static int made; /* streams and events are numbers */

static cudaError_t refused(const char *name) {
  fprintf(stderr, "stand_in_device: %s: a real tensor met the device\n", name);
  return cudaErrorNotSupported;
}

static void *another(void) { return (void *)(size_t)(4096 + 16 * ++made); }

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
  memset(found, 0, sizeof *found);
  strcpy(found->name, "stand-in for an H100");
  found->major = 9;
  found->multiProcessorCount = 132;
  found->totalGlobalMem = 80ull << 30;
  found->warpSize = 32;
  found->maxThreadsPerBlock = 1024;
  found->maxThreadsPerMultiProcessor = 2048;
  found->sharedMemPerBlock = 48 << 10;
  found->sharedMemPerBlockOptin = 227 << 10;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **place, size_t size) {
  *place = malloc(size < 64 ? 64 : size);
  return *place ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *place) { free(place); return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
  *left = *total = (size_t)80 << 30;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  *stream = another();
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  *event = another();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return cudaSuccess; }

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) {
  return refused("cudaLaunchKernelExC");
}
cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t s, cudaStream_t t) {
  return refused("cudaLaunchKernel");
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return refused("cudaMemcpyAsync");
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  return refused("cudaMemcpy");
}
cudaError_t cudaMemsetAsync(void *place, int value, size_t size, cudaStream_t stream) {
  return refused("cudaMemsetAsync");
}

/* The driver: the context is there, and all else fails. */

static int driver_refuses(void) { return 801; /* CUDA_ERROR_NOT_SUPPORTED */ }

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
  *found = (void *)driver_refuses;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return 0;
}

#define REFUSED(name) int name(void) { return driver_refuses(); }
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxSetCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuDevicePrimaryCtxRetain)
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuFuncSetCacheConfig)
REFUSED(cuGetErrorString)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLinkAddData_v2)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate_v2)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleLoad)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleUnload)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuPointerGetAttribute)
REFUSED(cuTensorMapEncodeTiled)
