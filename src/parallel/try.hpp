// Early return of an error, in functions that answer Status or Result.
#pragma once

#include "treering/result.hpp"

#define TR_PAR_JOIN2(a, b) a##b
#define TR_PAR_JOIN(a, b) TR_PAR_JOIN2(a, b)

// TRY(call()); leaves the function with call's error, if it has one.
#define TRY(expression)                                          \
  do {                                                           \
    if (auto tried = (expression); !tried) return tried.error(); \
  } while (false)

// TRY_ASSIGN(auto x, call()); x is the value.
#define TRY_ASSIGN(target, expression) \
  TRY_ASSIGN_AS(TR_PAR_JOIN(tried_, __LINE__), target, expression)
#define TRY_ASSIGN_AS(name, target, expression) \
  auto name = (expression);                     \
  if (!name) return name.error();               \
  target = std::move(name).value()
