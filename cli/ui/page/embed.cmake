# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source with the files of the live page as arrays.
set(assets "")
set(code "")
foreach(file "index.html" "page.css" "page.js")
  string(MAKE_C_IDENTIFIER "${file}" name)
  file(READ ${CMAKE_CURRENT_LIST_DIR}/dist/${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND code "constexpr char ${name}[] = {${bytes}};\n")
  if(file STREQUAL "index.html")
    set(path "/")
    set(type "text/html")
  elseif(file MATCHES "css$")
    set(path "/${file}")
    set(type "text/css")
  else()
    set(path "/${file}")
    set(type "text/javascript")
  endif()
  string(APPEND assets "      {\"${path}\", \"${type}; charset=utf-8\", {${name}, sizeof ${name}}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"cli/ui/page_assets.h\"

namespace ringmaster::cli {
namespace {
${code}}  // namespace

std::span<const PageAsset> PageAssets() {
  static constexpr PageAsset kAssets[] = {
${assets}  };
  return kAssets;
}

}  // namespace ringmaster::cli
")
