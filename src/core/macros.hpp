// The one macro for code that is compiled for host and device alike.
#pragma once

#if defined(__CUDACC__)
#define TR_HD __host__ __device__
#else
#define TR_HD
#endif
