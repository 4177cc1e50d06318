// Finds the functions that a loaded library imports, and redirects them to other functions. Arrays
// of a framework are thereby allocated in shared memory (shm/served_memory.hpp).
#pragma once

#include <string_view>
#include <vector>

namespace ringcomm {

// Returns the entries of the library's global offset table that hold this function's address.
// `library` is the file's name up to ".so" (libc10). Empty if it is not loaded, if it does not
// import the function, or if the tables are not ELF's of x86-64 or AArch64.
std::vector<void**> imports(std::string_view library, std::string_view function);

// Stores `address` in all entries. Returns false, with nothing changed, if the system refuses to
// make one of them writable.
bool redirect(const std::vector<void**>& entries, void* address);

}  // namespace ringcomm
