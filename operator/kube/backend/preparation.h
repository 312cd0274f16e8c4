// How it is known, also after a restart, that everything beside the pods of an attempt is there: each object
// carries what it was made for and how many there are of them. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/model.h"

namespace ringmaster::kube {

// "attempt=3,size=8,min=4,objects=2"
std::string MarkOf(const core::PrepareGang& action, size_t objects);

// What all objects are there for, by the marks of those that exist. Objects of older attempts may be left
// over. nullopt: something is missing.
std::optional<core::PrepareGang> ReadMarks(const std::vector<std::string>& marks);

}  // namespace ringmaster::kube
