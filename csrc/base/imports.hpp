// Functions that a loaded library imports, and how to give it others in their place.
#pragma once

#include <string_view>
#include <vector>

namespace ringcomm {

// The entries of the library's global offset table that hold this function's address. `library`: the file's name up to
// ".so" (libc10). Empty where it is not loaded, imports no such function, or tables are unlike ELF's on x86-64 and
// AArch64.
std::vector<void**> imports(std::string_view library, std::string_view function);

// Stores `address` in all of them; false, and nothing is changed, if the system refuses to make one writable.
bool redirect(const std::vector<void**>& entries, void* address);

}  // namespace ringcomm
