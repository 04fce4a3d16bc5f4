# find_package(fsdp2) gives the target fsdp2::fsdp2. The prefix is where this file lies: it may be moved.
get_filename_component(_fsdp2_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET fsdp2::fsdp2)
  add_library(fsdp2::fsdp2 SHARED IMPORTED)
  set_target_properties(fsdp2::fsdp2 PROPERTIES
    IMPORTED_LOCATION "${_fsdp2_prefix}/lib/libfsdp2.so.0"
    IMPORTED_SONAME "libfsdp2.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_fsdp2_prefix}/include")
endif()

unset(_fsdp2_prefix)
