// Treering's C++ API: RAII over treering.h. (being written)
#pragma once
#include "treering/treering.h"
