// Element by element, by the rules of core/elements.hpp.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/elements.hpp"
#include "engine/reduce_folds.hpp"

namespace treering {
namespace {

template <class Element, RedOp op>
void fold(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  using Stored = typename Element::Stored;
  using Folded = typename Element::Folded;
  const auto load = [&args](int input, std::size_t index) {
    Stored stored;
    std::memcpy(&stored,
                static_cast<const std::uint8_t*>(args.inputs[input]) + index * sizeof(Stored),
                sizeof(Stored));
    Folded value = Element::load(stored);
    if constexpr (std::is_floating_point_v<Folded>) {
      if (input == args.scaled_input) {
        value = Element::load(Element::store(value * static_cast<Folded>(args.scale_in)));
      }
    }
    return value;
  };
  for (std::size_t i = first_elem; i < first_elem + elems; ++i) {
    Folded total = load(0, i);
    for (int input = 1; input < args.num_inputs; ++input) {
      total = combine<op>(total, load(input, i));
    }
    if constexpr (std::is_floating_point_v<Folded>) {
      if (args.divisor != 1) total *= static_cast<Folded>(1.0 / args.divisor);
    }
    const Stored stored = Element::store(total);
    for (int output = 0; output < args.num_outputs; ++output) {
      std::memcpy(static_cast<std::uint8_t*>(args.outputs[output]) + i * sizeof(Stored), &stored,
                  sizeof(Stored));
    }
  }
}

template <class Element>
void fold(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  switch (args.op) {
    case RedOp::kProd:
      return fold<Element, RedOp::kProd>(args, first_elem, elems);
    case RedOp::kMin:
      return fold<Element, RedOp::kMin>(args, first_elem, elems);
    case RedOp::kMax:
      return fold<Element, RedOp::kMax>(args, first_elem, elems);
    default:
      return fold<Element, RedOp::kSum>(args, first_elem, elems);
  }
}

}  // namespace

void fold_scalars(const ReduceArgs& args, std::size_t first_elem, std::size_t elems) {
  with_element(args.type, [&]<class Element>(Element) { fold<Element>(args, first_elem, elems); });
}

}  // namespace treering
