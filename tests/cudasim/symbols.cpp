// Names of kernels for reports, from the symbol table of the file that holds them: kernels are
// often static or hidden, and dladdr knows exported names only.
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "block.hpp"

namespace cudasim {
namespace {

// The mangled name of the function `offset` bytes after the beginning of the ELF file's image; "".
std::string name_in(const std::byte* file, std::uintptr_t offset) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file + sections[i].sh_offset);
    const auto* names =
        reinterpret_cast<const char*>(file + sections[sections[i].sh_link].sh_offset);
    for (std::size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if (symbols[s].st_value == offset && ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC) {
        return names + symbols[s].st_name;
      }
    }
  }
  return "";
}

std::string mangled_name(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0) return "";
  const bool is_program =
      access(info.dli_fname, R_OK) != 0 || std::strchr(info.dli_fname, '/') == nullptr;
  const int file = open(is_program ? "/proc/self/exe" : info.dli_fname, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) return "";
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapping == MAP_FAILED) return "";
  const auto* image = static_cast<const std::byte*>(mapping);
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image);
  const auto address = reinterpret_cast<std::uintptr_t>(function);
  const std::string name =
      name_in(image, header->e_type == ET_EXEC
                         ? address
                         : address - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  munmap(mapping, bytes);
  return name;
}

}  // namespace

std::string kernel_name(const void* kernel) {
  const std::string mangled = mangled_name(kernel);
  if (mangled.empty()) {
    char address[32];
    std::snprintf(address, sizeof address, "kernel at %p", kernel);
    return address;
  }
  int status = 0;
  char* readable = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? readable : mangled;
  std::free(readable);
  // Without the arguments, which a reader of the source does not need.
  if (const std::size_t end = name.rfind('('); end != std::string::npos && end != 0)
    name.resize(end);
  return "kernel " + name;
}

}  // namespace cudasim
