// Finds imported functions in a library's ELF relocation tables, and overwrites their addresses.
#include "base/imports.hpp"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

namespace ringcomm {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kEntryOfCall = R_X86_64_JUMP_SLOT, kEntryOfAddress = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr std::uint32_t kEntryOfCall = R_AARCH64_JUMP_SLOT, kEntryOfAddress = R_AARCH64_GLOB_DAT;
#else
constexpr std::uint32_t kEntryOfCall = ~0U, kEntryOfAddress = ~0U;
#endif

// Relocation tables of a library, with the names that they refer to.
class Tables {
 public:
  Tables(ElfW(Addr) base, const ElfW(Dyn) * entry) : base_(base) {
    std::size_t of_calls = 0, others = 0;
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) symbols_ = at<ElfW(Sym)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) names_ = at<char>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_JMPREL) calls_ = at<ElfW(Rela)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_RELA) others_ = at<ElfW(Rela)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_PLTRELSZ) of_calls = entry->d_un.d_val;
      if (entry->d_tag == DT_RELASZ) others = entry->d_un.d_val;
    }
    calls_size_ = calls_ ? of_calls / sizeof(ElfW(Rela)) : 0;
    others_size_ = others_ ? others / sizeof(ElfW(Rela)) : 0;
  }

  void find(std::string_view function, std::vector<void**>& found) const {
    if (!symbols_ || !names_) return;
    for (const auto table : {std::span(calls_, calls_size_), std::span(others_, others_size_)}) {
      for (const ElfW(Rela) & relocation : table) {
        const auto kind = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
        if (kind != kEntryOfCall && kind != kEntryOfAddress) continue;
        if (names_ + symbols_[ELF64_R_SYM(relocation.r_info)].st_name != function) continue;
        found.push_back(reinterpret_cast<void**>(base_ + relocation.r_offset));
      }
    }
  }

 private:
  // The dynamic section holds offsets. glibc has replaced them by addresses; musl has not.
  template <class T>
  const T* at(ElfW(Addr) address) const {
    return reinterpret_cast<const T*>(address < base_ ? base_ + address : address);
  }

  ElfW(Addr) base_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  const ElfW(Rela) * calls_ = nullptr, *others_ = nullptr;
  std::size_t calls_size_ = 0, others_size_ = 0;
};

struct Search {
  std::string_view library, function;
  std::vector<void**> found{};
};

int look(dl_phdr_info* info, std::size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  std::string_view file = info->dlpi_name;
  file.remove_prefix(file.rfind('/') + 1);
  if (!file.starts_with(search.library) || !file.substr(search.library.size()).starts_with(".so")) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info->dlpi_phdr[i];
    if (header.p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + header.p_vaddr);
    Tables(info->dlpi_addr, entry).find(search.function, search.found);
  }
  return 1;
}

// Makes the page of an entry writable: the dynamic loader may have made the table read-only.
bool make_writable(void** entry) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(entry) & ~(page - 1);
  return ::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_WRITE) == 0;
}

}  // namespace

std::vector<void**> imports(std::string_view library, std::string_view function) {
  Search search{library, function};
  ::dl_iterate_phdr(look, &search);
  return search.found;
}

bool redirect(const std::vector<void**>& entries, void* address) {
  if (!std::all_of(entries.begin(), entries.end(), make_writable)) return false;
  for (void** entry : entries) std::atomic_ref<void*>(*entry).store(address, std::memory_order_release);
  return true;
}

}  // namespace ringcomm
