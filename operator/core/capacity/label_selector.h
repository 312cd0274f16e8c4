// SPDX-License-Identifier: Apache-2.0

// Label selectors in the text form of kubectl and of the API's `labelSelector` parameter:
//   a=b,c!=d,e in (f,g),h notin (i,j),k,!l
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "operator/core/capacity/capacity.h"

namespace ringmaster::core {

using LabelSelector = std::vector<Requirement>;  // all of them must hold; without kGt and kLt

// Errors: kInvalid, with the part that is not understood.
Result<LabelSelector> ParseLabelSelector(std::string_view text);
bool Selects(const LabelSelector& selector, const std::map<std::string, std::string>& labels);

}  // namespace ringmaster::core
