# Compiles the kernels once per instruction set: isa_*.cpp, which include body/body.inl. A file for
# another architecture compiles to nothing. Debug and sanitizer builds use -O3 too, so that their
# tests are short.
set(kernels ${CMAKE_CURRENT_LIST_DIR})
set(always -O3 -ffp-contract=off -fno-math-errno -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND always -fno-unswitch-loops)  # would copy each loop for every flag that it tests
endif()

set(flags_avx2 "")
set(flags_avx512 "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(flags_avx2 -mavx2 -mf16c -mfma -mprfchw)
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
endif()

set_source_files_properties(${kernels}/isa_generic.cpp ${kernels}/isa_neon.cpp PROPERTIES COMPILE_OPTIONS "${always}")
set_source_files_properties(${kernels}/isa_avx2.cpp PROPERTIES COMPILE_OPTIONS "${always};${flags_avx2}")
set_source_files_properties(${kernels}/isa_avx512.cpp PROPERTIES COMPILE_OPTIONS "${always};${flags_avx512}")
file(GLOB kernel_bodies CONFIGURE_DEPENDS ${kernels}/body/*.inl)
set_source_files_properties(
  ${kernels}/isa_generic.cpp ${kernels}/isa_avx2.cpp ${kernels}/isa_avx512.cpp ${kernels}/isa_neon.cpp
  PROPERTIES OBJECT_DEPENDS "${kernel_bodies}")
