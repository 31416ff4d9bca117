// A sysfs and procfs made of directories, as a machine with these devices would have them: tests of
// live detection read it.
#pragma once

#include <filesystem>
#include <string>

#include "topo/graph.hpp"

namespace treering::topo {

class FakeRoot {
 public:
  FakeRoot();
  ~FakeRoot();
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  std::string path() const { return root_.string() + "/"; }
  // The directories above a file are made.
  void write(const std::string& file, const std::string& text) const;
  void link(const std::string& name, const std::string& target) const;
  void remove(const std::string& name) const;

  // All of a machine that was read from a file: four CPUs of each NUMA node; below each NUMA node
  // one root bus; a root port above each device and switch; switches with up- and downstream ports.
  void write_machine(const Graph& graph);

 private:
  void write_below(const Graph& graph, NodeId parent, const std::string& directory, NodeId numa);
  void write_function(const std::string& directory, const std::string& id, const char* pci_class,
                      const char* vendor, const Link* link, int numa) const;
  std::string port_id();

  std::filesystem::path root_;
  int ports_ = 0;
};

}  // namespace treering::topo
