// The calls of the CUDA driver that Triton makes, answered without a device: nothing is run.
#include <stddef.h>

#include "cuda.h"

enum { SHARED_MEMORY = 232448, MOST_THREADS = 1024 };

static CUresult answer(void *where, size_t value) {
  *(size_t *)where = value;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) { *version = CUDA_VERSION; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "no device"; return error; }
CUresult cuCtxGetCurrent(CUcontext *context) { return answer(context, 1); }
CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { return answer(value, 0); }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { return answer(context, 1); }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  *value = SHARED_MEMORY;
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) { return answer(module, 1); }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  static size_t count = 0;
  return answer(function, ++count);
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? MOST_THREADS : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  return CUDA_SUCCESS;
}
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr pointer) {
  return answer(data, pointer);
}

// Told of every launch, if there is anybody.
void (*listener)(const CUlaunchConfig *config, CUfunction function, void **arguments) = NULL;

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra) {
  if (listener != NULL) listener(config, function, arguments);
  return CUDA_SUCCESS;
}
