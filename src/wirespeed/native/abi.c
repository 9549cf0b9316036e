/* The number by which Python recognises a library that was compiled from other sources than those beside it. */
#include "wirespeed.h"

WS_EXPORT int64_t ws_abi(void);

int64_t ws_abi(void) { return WS_ABI; }
