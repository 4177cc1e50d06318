# CMake toolchain for build_wheels.py: Clang, libc++ and the glibc stubs of the package ziglang. It
# reads two environment variables. ZIG is the binary in that package. ZIG_TARGET is for example
# x86_64-linux-gnu.2.28; its last part is the oldest supported glibc.
string(REGEX REPLACE "-.*" "" machine "$ENV{ZIG_TARGET}")
if(NOT machine STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${machine})
endif()

# CMake needs compilers without arguments: these scripts add them.
set(tools ${CMAKE_BINARY_DIR}/zig)
foreach(tool cc c++ ar ranlib)
  set(target "")
  if(tool MATCHES "^c")
    set(target "-target $ENV{ZIG_TARGET}")
  endif()
  file(WRITE ${tools}/${tool} "#!/bin/sh\nexec '$ENV{ZIG}' ${tool} ${target} \"$@\"\n")
  file(CHMOD ${tools}/${tool} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_C_COMPILER ${tools}/cc)
set(CMAKE_CXX_COMPILER ${tools}/c++)
set(CMAKE_AR ${tools}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${tools}/ranlib CACHE FILEPATH "")
