// SPDX-License-Identifier: Apache-2.0

// What `ringmaster checkpoints` prints: as text for people, and as JSON for programs. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "worker/checkpoint/catalog.h"

namespace ringmaster::cli {

// The outcome of reading one checkpoint.
struct Verified {
  checkpoint::CatalogEntry entry;
  std::vector<Error> damage;  // empty: whole
};

std::string ListText(const std::string& folder, const std::vector<checkpoint::CatalogEntry>& entries);
Json ListJson(const std::string& folder, const std::vector<checkpoint::CatalogEntry>& entries);

std::string ShowText(const std::string& folder, const checkpoint::CatalogEntry& entry);
Json ShowJson(const std::string& folder, const checkpoint::CatalogEntry& entry);

std::string VerifyText(const std::vector<Verified>& verified);
Json VerifyJson(const std::string& folder, const std::vector<Verified>& verified);

// "12.3 MB"
std::string SizeText(int64_t bytes);

}  // namespace ringmaster::cli
