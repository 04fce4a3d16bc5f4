#!/bin/bash
# A C program builds by CMake, which finds the package by its prefix, and trains; also where the prefix has been moved to.
source tests/install/installed.sh
need cmake gcc

mkdir "$work/project"
cp examples/c/train.c "$work/project"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(consumer C)
find_package(fsdp2 0.2 QUIET)
if(fsdp2_FOUND)
  message(FATAL_ERROR "the package takes itself for 0.2")
endif()
find_package(fsdp2 0.1 REQUIRED)
add_executable(train train.c)
target_link_libraries(train fsdp2::fsdp2)
END

builds_and_trains() {
  local build
  build=$(mktemp -d "$work/build.XXXXXX")
  cmake -S "$work/project" -B "$build"
  cmake --build "$build"
  train_c_program "$build/train"
}

in_two_places builds_and_trains
