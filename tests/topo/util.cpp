#include "tests/topo/util.hpp"

#include <fstream>
#include <sstream>

namespace treering::topo {

std::string data(const std::string& name) {
  std::ifstream file(TOPO_DATA "/" + name);
  EXPECT_TRUE(file.good()) << "no test data " << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace treering::topo
